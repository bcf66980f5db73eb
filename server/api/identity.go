package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// WhoAmI says which key, project and organisation a request is made with.
type WhoAmI struct {
	APIKeyID         string `json:"api_key_id"`
	ProjectID        string `json:"project_id"`
	ProjectName      string `json:"project_name"`
	ProjectSlug      string `json:"project_slug"` // a DNS label
	OrganizationID   string `json:"organization_id"`
	OrganizationName string `json:"organization_name"`
	UserID           string `json:"user_id,omitempty"`
}

// Paging is the query of a list that comes in pages.
type Paging struct {
	After string `query:"after" json:"-"` // next_cursor of the previous page
	Limit *int   `query:"limit" json:"-"` // 1 to MaxPage, default 100
}

// MaxPage bounds the limit of one page.
const MaxPage = 1000

// Validate checks the limit; a cursor is checked where it is used.
func (p *Paging) Validate() error {
	if p.Limit != nil && (*p.Limit < 1 || *p.Limit > MaxPage) {
		return Invalid("limit", "limit must be between 1 and %d, got %d", MaxPage, *p.Limit)
	}
	return nil
}

// Size is the limit with its default.
func (p *Paging) Size() int {
	if p.Limit == nil {
		return 100
	}
	return *p.Limit
}

// Project is one project of the organisation.
type Project struct {
	ID               string `json:"id"`
	Name             string `json:"name"`
	Slug             string `json:"slug"`
	OrganizationID   string `json:"organization_id"`
	OrganizationName string `json:"organization_name"`
}

// Projects is a page of projects; a null cursor means the last one.
type Projects struct {
	Data       []Project `json:"data"`
	NextCursor *string   `json:"next_cursor"`
}

// APIKey is a key as its owner sees it. Key, the secret, is there in the answer
// that made it and never again.
type APIKey struct {
	ID               string     `json:"id"`
	Name             string     `json:"name"`
	Key              string     `json:"key,omitempty"`
	Prefix           string     `json:"prefix"` // the beginning of the secret
	ProjectID        string     `json:"project_id"`
	UserID           string     `json:"user_id,omitempty"`
	ProjectRole      string     `json:"project_role"`      // admin, editor or ""
	OrganizationRole string     `json:"organization_role"` // admin or developer
	CreatedAt        time.Time  `json:"created_at"`
	ExpiresAt        *time.Time `json:"expires_at"`   // null: never
	LastUsedAt       *time.Time `json:"last_used_at"` // null: not yet; exact to a minute
}

// APIKeys is the list of keys, without secrets.
type APIKeys struct {
	Data []APIKey `json:"data"`
}

// KeyExpiry is when a key shall expire, in one of two ways or not at all.
type KeyExpiry struct {
	ExpiresIn string       `json:"expires_in"` // 1h, 1d, 7d or 30d from now
	ExpiresAt NullableTime `json:"expires_at"` // a moment; null means never
}

var keyLifetimes = map[string]time.Duration{
	"1h": time.Hour, "1d": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour,
}

// Given reports whether the request speaks of the expiry at all.
func (e *KeyExpiry) Given() bool { return e.ExpiresIn != "" || e.ExpiresAt.Set }

// Time is the moment of expiry for a request at now, nil for never. It must lie
// ahead, and not further than a century.
func (e *KeyExpiry) Time(now time.Time) (*time.Time, error) {
	at := e.ExpiresAt.Time
	if e.ExpiresIn != "" {
		t := now.Add(keyLifetimes[e.ExpiresIn])
		at = &t
	}
	switch {
	case at == nil:
		return nil, nil
	case !at.After(now):
		return nil, Invalid("expires_at", "expires_at must be in the future, got %s", at.Format(time.RFC3339))
	case at.After(now.AddDate(100, 0, 0)):
		return nil, Invalid("expires_at", "expires_at must be within 100 years; use null for a key that does not expire")
	}
	utc := at.UTC()
	return &utc, nil
}

func (e *KeyExpiry) validate() error {
	if e.ExpiresIn == "" {
		return nil
	}
	if _, ok := keyLifetimes[e.ExpiresIn]; !ok {
		return Invalid("expires_in", "expires_in must be one of 1h, 1d, 7d and 30d, got %q", e.ExpiresIn)
	}
	if e.ExpiresAt.Set {
		return Invalid("expires_in", "expires_in and expires_at cannot be given together")
	}
	return nil
}

// CreateKeyRequest is the body of POST /api-keys.
type CreateKeyRequest struct {
	Name string `json:"name"`
	KeyExpiry
}

// Validate checks what needs no clock.
func (r *CreateKeyRequest) Validate() error {
	if r.Name == "" {
		return Invalid("name", "name is required")
	}
	return r.KeyExpiry.validate()
}

// UpdateKeyRequest is PATCH /api-keys/{id}; what is absent stays as it is, and
// "expires_at": null cancels an expiry.
type UpdateKeyRequest struct {
	ID   string  `path:"id" json:"-"`
	Name *string `json:"name"`
	KeyExpiry
}

// Validate checks what needs no clock.
func (r *UpdateKeyRequest) Validate() error { return r.KeyExpiry.validate() }

// KeyRequest names a key in the path.
type KeyRequest struct {
	ID string `path:"id" json:"-"`
}

// NullableTime tells null from absent.
type NullableTime struct {
	Set  bool       // the field was there
	Time *time.Time // nil for null
}

// UnmarshalJSON reads null or an RFC 3339 time.
func (n *NullableTime) UnmarshalJSON(data []byte) error {
	n.Set, n.Time = true, nil
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	var t time.Time
	if err := json.Unmarshal(data, &t); err != nil {
		return errors.New("must be null or an RFC 3339 time such as 2027-01-31T12:00:00Z")
	}
	n.Time = &t
	return nil
}
