package resource

import "time"

// Project separates models, keys and usage inside an organisation.
type Project struct {
	ID             ProjectID      `json:"id"`
	OrganizationID OrganizationID `json:"organization_id"`
	Name           string         `json:"name"` // see ValidateName
	Slug           string         `json:"slug"` // see ValidateSlug; unique in the organisation
	Visibility     Visibility     `json:"visibility"`
	CreatedAt      time.Time      `json:"created_at"`
}

// Visibility says who of the organisation sees a project and may join it.
type Visibility string

// The visibilities of a project.
const (
	VisibilityOpen    Visibility = "open"    // everyone sees it and may join
	VisibilityClosed  Visibility = "closed"  // everyone sees it, an admin lets people in
	VisibilityPrivate Visibility = "private" // only its members see it
)

// Valid reports whether v is one of the visibilities.
func (v Visibility) Valid() bool {
	return v == VisibilityOpen || v == VisibilityClosed || v == VisibilityPrivate
}

// ProjectRole is what a member or key may do in one project.
type ProjectRole string

// The roles of a project.
const (
	ProjectAdmin  ProjectRole = "admin"  // may also manage members, keys and settings
	ProjectEditor ProjectRole = "editor" // may use and change what is in the project
)

// Valid reports whether r is one of the roles.
func (r ProjectRole) Valid() bool { return r == ProjectAdmin || r == ProjectEditor }

// Allows reports whether r is enough where need is asked for. An unknown role
// allows nothing.
func (r ProjectRole) Allows(need ProjectRole) bool {
	return r == ProjectAdmin && need.Valid() || r == ProjectEditor && need == ProjectEditor
}
