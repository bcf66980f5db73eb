package identity

import (
	"athanor/server/api"
	"athanor/store/resource"
)

// wireKey is the record as the API shows it, without its hash.
func wireKey(k *resource.APIKey) api.APIKey {
	return api.APIKey{
		ID: string(k.ID), Name: k.Name, Prefix: k.Prefix, ProjectID: string(k.ProjectID), UserID: string(k.UserID),
		ProjectRole: string(k.Role), OrganizationRole: string(k.OrgRole),
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt,
	}
}

func wireProject(p *resource.Project, organization string) api.Project {
	return api.Project{
		ID: string(p.ID), Name: p.Name, Slug: p.Slug,
		OrganizationID: string(p.OrganizationID), OrganizationName: organization,
	}
}
