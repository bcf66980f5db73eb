package identity

import (
	"context"
	"errors"
	"fmt"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// maxKeys bounds the live keys of one project, since their list has no pages.
const maxKeys = 1000

// Ops are the operations of this slice. Those on keys ask for no role: everyone
// may manage the keys of their own, see the rules in the package's comment.
func (s *Service) Ops() []rest.Op {
	const tag = "identity"
	return []rest.Op{
		rest.Get("/whoami", tag, rest.AnyKey, s.WhoAmI),
		rest.Get("/projects", tag, rest.AnyKey, s.Projects),
		rest.Post("/api-keys", tag, rest.AnyKey, s.Create, rest.Created()),
		rest.Get("/api-keys", tag, rest.AnyKey, s.List),
		rest.Patch("/api-keys/:id", tag, rest.AnyKey, s.Update),
		rest.Post("/api-keys/:id/regenerate", tag, rest.AnyKey, s.Regenerate),
		rest.Delete("/api-keys/:id", tag, rest.AnyKey, s.Revoke),
	}
}

// WhoAmI answers GET /whoami.
func (s *Service) WhoAmI(ctx context.Context, _ *rest.None) (*api.WhoAmI, error) {
	p := rest.Caller(ctx)
	return &api.WhoAmI{
		APIKeyID: p.KeyID, ProjectID: p.ProjectID, ProjectName: p.ProjectName, ProjectSlug: p.ProjectSlug,
		OrganizationID: p.OrganizationID, OrganizationName: p.OrganizationName, UserID: p.UserID,
	}, nil
}

// Projects answers GET /projects: those of the organisation that the caller may
// see, the oldest first.
func (s *Service) Projects(ctx context.Context, r *api.Paging) (*api.Projects, error) {
	caller := rest.Caller(ctx)
	out := &api.Projects{Data: []api.Project{}}
	err := s.db.View(func(tx *store.Tx) error {
		page := store.Page{Prefix: store.Key(caller.OrganizationID, ""), After: r.After}
		for {
			page.Limit = r.Size() - len(out.Data)
			list, next, err := store.Projects.List(tx, store.ByOrganization, page)
			if err != nil {
				return err
			}
			for _, p := range list {
				seen, err := visible(tx, caller, p)
				if err != nil {
					return err
				}
				if seen {
					out.Data = append(out.Data, wireProject(p, caller.OrganizationName))
				}
			}
			if page.After = next; next == "" {
				return nil
			}
			if len(out.Data) == r.Size() {
				out.NextCursor = &next
				return nil
			}
		}
	})
	if errors.Is(err, store.ErrBadCursor) {
		return nil, api.Invalid("after", "after is not a cursor of this list")
	}
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return out, nil
}

// visible reports whether the caller may see a project of the organisation.
func visible(tx *store.Tx, caller *rest.Principal, p *resource.Project) (bool, error) {
	if string(p.ID) == caller.ProjectID || p.Visibility != resource.VisibilityPrivate || rest.OrgAdmin.Allows(caller) {
		return true, nil
	}
	_, err := store.Memberships.Get(tx, resource.MembershipID(p.ID, resource.UserID(caller.UserID)))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Create answers POST /api-keys. The new key is the caller's: same person, same
// project, same roles.
func (s *Service) Create(ctx context.Context, r *api.CreateKeyRequest) (*api.APIKey, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	expires, err := r.Time(s.now())
	if err != nil {
		return nil, err
	}
	caller := rest.Caller(ctx)
	keys, err := s.keys(resource.ProjectID(caller.ProjectID))
	if err != nil {
		return nil, err
	}
	if len(keys) >= maxKeys {
		return nil, api.Conflict("the project has %d API keys; revoke one before another is made", len(keys))
	}
	key, secret, err := s.CreateKey(ctx, KeySpec{
		Name: r.Name, ProjectID: resource.ProjectID(caller.ProjectID), UserID: resource.UserID(caller.UserID),
		Role: resource.ProjectRole(caller.ProjectRole), OrgRole: resource.OrgRole(caller.OrgRole), ExpiresAt: expires,
	})
	if err != nil {
		return nil, err
	}
	out := wireKey(key)
	out.Key = secret
	return &out, nil
}

// List answers GET /api-keys: the keys of the project that the caller may
// manage, the oldest first.
func (s *Service) List(ctx context.Context, _ *rest.None) (*api.APIKeys, error) {
	caller := rest.Caller(ctx)
	keys, err := s.keys(resource.ProjectID(caller.ProjectID))
	if err != nil {
		return nil, err
	}
	out := &api.APIKeys{Data: []api.APIKey{}}
	for _, k := range keys {
		if manages(caller, k) {
			out.Data = append(out.Data, wireKey(k))
		}
	}
	return out, nil
}

// keys reads all keys of a project that are not revoked.
func (s *Service) keys(project resource.ProjectID) (keys []*resource.APIKey, err error) {
	err = s.db.View(func(tx *store.Tx) error {
		page := store.Page{Prefix: store.Key(string(project), ""), Limit: maxKeys}
		for {
			list, next, err := store.Keys.List(tx, store.ByProject, page)
			if err != nil {
				return fmt.Errorf("list keys: %w", err)
			}
			for _, k := range list {
				if k.RevokedAt == nil {
					keys = append(keys, k)
				}
			}
			if page.After = next; next == "" {
				return nil
			}
		}
	})
	return keys, err
}

// Update answers PATCH /api-keys/{id}.
func (s *Service) Update(ctx context.Context, r *api.UpdateKeyRequest) (*api.APIKey, error) {
	if r.Name != nil {
		if err := checkName(*r.Name); err != nil {
			return nil, err
		}
	}
	expires, err := r.Time(s.now())
	if err != nil {
		return nil, err
	}
	return s.change(ctx, r.ID, func(k *resource.APIKey) error {
		if r.Name != nil {
			k.Name = *r.Name
		}
		if r.Given() {
			k.ExpiresAt = expires
		}
		return nil
	})
}

// Regenerate answers POST /api-keys/{id}/regenerate: the key gets a new secret
// and the old one is worth nothing at once. The expiry stays.
func (s *Service) Regenerate(ctx context.Context, r *api.KeyRequest) (*api.APIKey, error) {
	caller := rest.Caller(ctx)
	secret, err := newSecret(s.random)
	if err != nil {
		return nil, err
	}
	out, err := s.change(ctx, r.ID, func(k *resource.APIKey) error {
		if !covers(caller, k) {
			return api.Forbidden("the key has more rights than yours, so its new secret is not for you")
		}
		h := hash(secret)
		k.Hash, k.Prefix = h[:], prefix(secret)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Key = secret
	return out, nil
}

// Revoke answers DELETE /api-keys/{id}.
func (s *Service) Revoke(ctx context.Context, r *api.KeyRequest) (*rest.None, error) {
	_, err := s.change(ctx, r.ID, func(k *resource.APIKey) error {
		now := s.now()
		k.RevokedAt = &now
		return nil
	})
	return nil, err
}

// change lets fn alter a key that the caller manages.
func (s *Service) change(ctx context.Context, id string, fn func(*resource.APIKey) error) (*api.APIKey, error) {
	caller := rest.Caller(ctx)
	var changed *resource.APIKey
	err := s.db.Update(ctx, func(tx *store.Tx) (err error) {
		changed, err = store.Keys.Update(tx, id, func(k *resource.APIKey) error {
			switch {
			case k.RevokedAt != nil:
				return store.ErrNotFound
			case string(k.ProjectID) != caller.ProjectID:
				return api.Forbidden("the API key belongs to another project")
			case !manages(caller, k):
				return api.Forbidden("the API key belongs to someone else: the role of %s is needed", rest.ProjectEditor)
			}
			return fn(k)
		})
		return err
	})
	s.cache.changed() // also after an error: it may have come after the commit
	if errors.Is(err, store.ErrNotFound) {
		return nil, api.NotFound("no API key %.80q", id)
	}
	if err != nil {
		return nil, fmt.Errorf("change key: %w", err)
	}
	out := wireKey(changed)
	return &out, nil
}

// manages reports whether the caller may see and change a key of its project.
func manages(caller *rest.Principal, k *resource.APIKey) bool {
	own := string(k.ID) == caller.KeyID || k.UserID != "" && string(k.UserID) == caller.UserID
	return own || rest.ProjectEditor.Allows(caller)
}

// covers reports whether the caller has every right that the key has.
func covers(caller *rest.Principal, k *resource.APIKey) bool {
	if rest.OrgAdmin.Allows(caller) {
		return true
	}
	project := k.Role == "" || resource.ProjectRole(caller.ProjectRole).Allows(k.Role)
	return project && k.OrgRole != resource.OrgAdmin
}

func checkName(name string) error {
	if err := resource.ValidateName(name); err != nil {
		return api.Invalid("name", "%v", err)
	}
	return nil
}
