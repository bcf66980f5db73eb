package resource

import "time"

// Organization owns the appliance and everything on it.
type Organization struct {
	ID        OrganizationID `json:"id"`
	Name      string         `json:"name"` // see ValidateName
	CreatedAt time.Time      `json:"created_at"`
}

// OrgRole is what a user or key may do in the organisation.
type OrgRole string

// The roles of an organisation.
const (
	OrgAdmin     OrgRole = "admin"     // may do everything, in every project
	OrgDeveloper OrgRole = "developer" // may use the projects that it is a member of
)

// Valid reports whether r is one of the roles.
func (r OrgRole) Valid() bool { return r == OrgAdmin || r == OrgDeveloper }

// Allows reports whether r is enough where need is asked for. An unknown role
// allows nothing.
func (r OrgRole) Allows(need OrgRole) bool {
	return r == OrgAdmin && need.Valid() || r == OrgDeveloper && need == OrgDeveloper
}
