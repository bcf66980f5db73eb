package resource

import "time"

// User is a person of the organisation.
type User struct {
	ID             UserID         `json:"id"`
	OrganizationID OrganizationID `json:"organization_id"`
	Name           string         `json:"name"` // see ValidateName
	OrgRole        OrgRole        `json:"org_role"`
	CreatedAt      time.Time      `json:"created_at"`
}

// Membership puts a user in a project.
type Membership struct {
	ProjectID ProjectID   `json:"project_id"`
	UserID    UserID      `json:"user_id"`
	Role      ProjectRole `json:"role"`
}

// MembershipID is the id of the one membership of a user in a project.
func MembershipID(p ProjectID, u UserID) string { return string(p) + "/" + string(u) }
