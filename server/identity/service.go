package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

// Service answers the operations of this slice and authenticates requests. Its
// methods may be called by any goroutine.
type Service struct {
	kit    kit.Kit
	db     *store.DB
	random io.Reader
	cache  *cache
	uses   *uses
}

var _ rest.Authenticator = (*Service)(nil)

// Option changes how a Service is made.
type Option func(*Service)

// Random replaces the source of secrets, for tests that need them fixed.
func Random(r io.Reader) Option { return func(s *Service) { s.random = r } }

// New makes a Service on db, which must outlive it.
func New(k kit.Kit, db *store.DB, opts ...Option) *Service {
	s := &Service{kit: k, db: db, random: rand.Reader, cache: newCache(), uses: newUses(k, db)}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Close writes what is still known only in memory: when keys were last used.
func (s *Service) Close() error { return s.uses.close() }

// Names of the meta values that the first start leaves.
const (
	metaProject = "identity.project" // the default project
	metaOwner   = "identity.owner"   // the first user
)

// Bootstrap makes, on the first start, the organisation, the default project, a
// user who owns them and an admin key, whose secret it returns. On every other
// start it does nothing.
func (s *Service) Bootstrap(ctx context.Context) (created bool, key string, err error) {
	now := s.now()
	org := &resource.Organization{ID: resource.OrganizationID(s.kit.NewID("org")), Name: "My organization", CreatedAt: now}
	project := &resource.Project{
		ID: resource.ProjectID(s.kit.NewID("proj")), OrganizationID: org.ID, Name: "Default project", Slug: "default",
		Visibility: resource.VisibilityOpen, CreatedAt: now,
	}
	user := &resource.User{
		ID: resource.UserID(s.kit.NewID("user")), OrganizationID: org.ID, Name: "Owner", OrgRole: resource.OrgAdmin, CreatedAt: now,
	}
	member := &resource.Membership{ProjectID: project.ID, UserID: user.ID, Role: resource.ProjectAdmin}
	record, secret, err := s.draw(KeySpec{
		Name: "admin", ProjectID: project.ID, UserID: user.ID, Role: resource.ProjectAdmin, OrgRole: resource.OrgAdmin,
	})
	if err != nil {
		return false, "", err
	}
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		created = false
		if _, err := store.Meta(tx).Get(metaProject); !errors.Is(err, store.ErrNotFound) {
			return err // nil: done before
		}
		created = true
		return errors.Join(
			store.Organizations.Insert(tx, string(org.ID), org),
			store.Projects.Insert(tx, string(project.ID), project),
			store.Users.Insert(tx, string(user.ID), user),
			store.Memberships.Insert(tx, resource.MembershipID(project.ID, user.ID), member),
			store.Keys.Insert(tx, string(record.ID), record),
			store.Meta(tx).Put(metaProject, []byte(project.ID)),
			store.Meta(tx).Put(metaOwner, []byte(user.ID)),
		)
	})
	if err != nil || !created {
		return false, "", err
	}
	return true, secret, nil
}

// KeySpec is what a new key shall be. An empty ProjectID means the default
// project; empty roles stay empty.
type KeySpec struct {
	Name      string
	ProjectID resource.ProjectID
	UserID    resource.UserID
	Role      resource.ProjectRole
	OrgRole   resource.OrgRole
	ExpiresAt *time.Time
}

// CreateKey makes a key without asking who wants it, and returns its record and
// its secret.
func (s *Service) CreateKey(ctx context.Context, spec KeySpec) (*resource.APIKey, string, error) {
	record, secret, err := s.draw(spec)
	if err != nil {
		return nil, "", err
	}
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		project := spec.ProjectID
		if project == "" {
			id, err := store.Meta(tx).Get(metaProject)
			if err != nil {
				return fmt.Errorf("default project: %w", err)
			}
			project = resource.ProjectID(id)
		}
		if _, err := store.Projects.Get(tx, string(project)); err != nil {
			return err
		}
		record.ProjectID = project
		return store.Keys.Insert(tx, string(record.ID), record)
	})
	if err != nil {
		return nil, "", fmt.Errorf("create key: %w", err)
	}
	return record, secret, nil
}

// draw makes a record and its secret.
func (s *Service) draw(spec KeySpec) (*resource.APIKey, string, error) {
	secret, err := newSecret(s.random)
	if err != nil {
		return nil, "", err
	}
	h := hash(secret)
	return &resource.APIKey{
		ID: resource.KeyID(s.kit.NewID("key")), Name: spec.Name, Prefix: prefix(secret), Hash: h[:],
		ProjectID: spec.ProjectID, UserID: spec.UserID, Role: spec.Role, OrgRole: spec.OrgRole,
		CreatedAt: s.now(), ExpiresAt: spec.ExpiresAt,
	}, secret, nil
}

// Owner is the principal of whoever works on the appliance's own machine: the
// owner in the default project, with all rights and without a key.
func (s *Service) Owner(context.Context) (*rest.Principal, error) {
	var p *rest.Principal
	err := s.db.View(func(tx *store.Tx) error {
		project, err := store.Meta(tx).Get(metaProject)
		if err != nil {
			return err
		}
		user, err := store.Meta(tx).Get(metaOwner)
		if err != nil {
			return err
		}
		p, err = principal(tx, &resource.APIKey{
			ID: "local", ProjectID: resource.ProjectID(project), UserID: resource.UserID(user),
			Role: resource.ProjectAdmin, OrgRole: resource.OrgAdmin,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the owner: %w", err)
	}
	return p, nil
}

// now is the time as records and answers have it.
func (s *Service) now() time.Time { return s.kit.Now().UTC().Truncate(time.Millisecond) }
