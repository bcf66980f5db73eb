package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"

	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
)

var (
	errUnknownKey = api.Unauthorized("invalid_api_key", "the API key is not valid")
	errExpiredKey = api.Unauthorized("invalid_api_key", "the API key has expired")
	errRevokedKey = api.Unauthorized("invalid_api_key", "the API key has been revoked")
)

// Authenticate finds the principal behind a secret. What is wrong with a key is
// said only to who knows the secret. The context is not used: a local look-up
// does not wait.
func (s *Service) Authenticate(_ context.Context, secret string) (*rest.Principal, error) {
	if !wellFormed(secret) {
		return nil, errUnknownKey
	}
	h := hash(secret)
	found, generation := s.cache.get(h)
	if found == nil {
		var err error
		if found, err = s.load(h); err != nil {
			return nil, err
		}
		s.cache.put(h, found, generation)
	}
	if subtle.ConstantTimeCompare(found.key.Hash, h[:]) != 1 {
		return nil, errUnknownKey
	}
	now := s.now()
	switch err := found.key.Active(now); {
	case errors.Is(err, resource.ErrKeyRevoked):
		return nil, errRevokedKey
	case err != nil:
		return nil, errExpiredKey
	}
	s.uses.note(found.key.ID, now)
	p := found.principal
	return &p, nil
}

// load reads a key and its surroundings from the store.
func (s *Service) load(h [sha256.Size]byte) (*cached, error) {
	var c cached
	err := s.db.View(func(tx *store.Tx) error {
		key, err := store.Keys.Lookup(tx, store.ByHash, h[:])
		if errors.Is(err, store.ErrNotFound) {
			return errUnknownKey
		}
		if err != nil {
			return err
		}
		p, err := principal(tx, key)
		if err != nil {
			return err
		}
		c = cached{*key, *p}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	return &c, nil
}

// principal completes a key to who is behind it.
func principal(tx *store.Tx, key *resource.APIKey) (*rest.Principal, error) {
	project, err := store.Projects.Get(tx, string(key.ProjectID))
	if err != nil {
		return nil, err
	}
	org, err := store.Organizations.Get(tx, string(project.OrganizationID))
	if err != nil {
		return nil, err
	}
	return &rest.Principal{
		KeyID: string(key.ID), UserID: string(key.UserID),
		ProjectID: string(project.ID), ProjectName: project.Name, ProjectSlug: project.Slug,
		OrganizationID: string(org.ID), OrganizationName: org.Name,
		OrgRole: string(key.OrgRole), ProjectRole: string(key.Role),
	}, nil
}

// cached is a key that was found, with its principal; neither is changed.
type cached struct {
	key       resource.APIKey
	principal rest.Principal
}

// maxCached bounds the cache; it is emptied when it is full.
const maxCached = 4096

// cache keeps keys by hash. Any change of any key empties it, and the
// generation keeps out what was read before a change and arrives after it.
type cache struct {
	mu         sync.RWMutex // guards what follows
	byHash     map[[sha256.Size]byte]*cached
	generation uint64
}

func newCache() *cache { return &cache{byHash: map[[sha256.Size]byte]*cached{}} }

func (c *cache) get(h [sha256.Size]byte) (*cached, uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byHash[h], c.generation
}

func (c *cache) put(h [sha256.Size]byte, found *cached, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return
	}
	if len(c.byHash) >= maxCached {
		clear(c.byHash)
	}
	c.byHash[h] = found
}

// changed is called after a change is in the store and before it is answered.
func (c *cache) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.byHash)
}
