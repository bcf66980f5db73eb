package resource

import (
	"errors"
	"time"
)

// Why a key is refused.
var (
	ErrKeyExpired = errors.New("the API key has expired")
	ErrKeyRevoked = errors.New("the API key has been revoked")
)

// APIKey is a credential of one project. The secret itself is never stored: Hash
// finds it, Prefix lets a person recognise it.
type APIKey struct {
	ID         KeyID       `json:"id"`
	Name       string      `json:"name"` // see ValidateName
	Prefix     string      `json:"prefix"`
	Hash       []byte      `json:"hash"` // SHA-256 of the secret
	ProjectID  ProjectID   `json:"project_id"`
	UserID     UserID      `json:"user_id,omitempty"` // who made it; may be ""
	Role       ProjectRole `json:"role"`
	OrgRole    OrgRole     `json:"org_role"`
	CreatedAt  time.Time   `json:"created_at"`
	ExpiresAt  *time.Time  `json:"expires_at,omitempty"` // nil: never
	RevokedAt  *time.Time  `json:"revoked_at,omitempty"` // nil: not revoked
	LastUsedAt *time.Time  `json:"last_used_at,omitempty"`
}

// Active returns nil if the key may be used at the time now, else ErrKeyRevoked or
// ErrKeyExpired; revocation goes first. A key is dead from the instant ExpiresAt on.
func (k *APIKey) Active(now time.Time) error {
	switch {
	case k.RevokedAt != nil:
		return ErrKeyRevoked
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return ErrKeyExpired
	}
	return nil
}
