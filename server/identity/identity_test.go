package identity_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"athanor/server/api"
	"athanor/server/identity"
	"athanor/server/kit"
	"athanor/server/rest"
	"athanor/store"
	"athanor/store/resource"
	"athanor/store/storetest"
)

func TestFirstStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if !strings.HasPrefix(w.admin, "ath_") || len(w.admin) != 47 {
		t.Errorf("got key %q", w.admin)
	}
	p, err := w.Authenticate(t.Context(), w.admin)
	want := rest.Principal{
		KeyID: "key-1", UserID: "user-1", ProjectID: "proj-1", ProjectName: "Default project", ProjectSlug: "default",
		OrganizationID: "org-1", OrganizationName: "My organization", OrgRole: "admin", ProjectRole: "admin",
	}
	if err != nil || *p != want {
		t.Errorf("got %+v, %v", p, err)
	}
	owner, err := w.Owner(t.Context())
	if want.KeyID = "local"; err != nil || *owner != want {
		t.Errorf("owner: got %+v, %v", owner, err)
	}
	if created, key, err := w.Bootstrap(t.Context()); created || key != "" || err != nil {
		t.Errorf("second start: got %v %q %v", created, key, err)
	}
	err = w.db.View(func(tx *store.Tx) error {
		key, err := store.Keys.Get(tx, "key-1")
		if err != nil {
			return err
		}
		if text := fmt.Sprintf("%+v %s", key, key.Hash); strings.Contains(text, w.admin) || !strings.HasPrefix(w.admin, key.Prefix) || len(key.Prefix) != 8 {
			t.Errorf("stored %s", text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSecretsDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := identity.New(w.kit, w.db) // with real randomness
	seen := map[string]bool{}
	for range 20 {
		_, secret, err := s.CreateKey(t.Context(), identity.KeySpec{Name: "x"})
		if err != nil || len(secret) != 47 || strings.Trim(secret[4:], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" || seen[secret] {
			t.Fatalf("got %q, %v", secret, err)
		}
		seen[secret] = true
	}
}

func TestCreateKeyForAnUnknownProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, _, err := w.CreateKey(t.Context(), identity.KeySpec{Name: "x", ProjectID: "none"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestBadRandomness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := identity.New(w.kit, w.db, identity.Random(strings.NewReader("short")))
	if _, secret, err := s.CreateKey(t.Context(), identity.KeySpec{Name: "x"}); err == nil {
		t.Errorf("got %q from five bytes", secret)
	}
}

func TestRefusedSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, secret := range []string{"", "x", "ath_", w.admin + "x", w.admin[:46], strings.ToUpper(w.admin), "ath_" + strings.Repeat("0", 1<<20), "ath_\x00\xff"} {
		var e *api.Error
		if p, err := w.Authenticate(t.Context(), secret); p != nil || !errors.As(err, &e) || e.Status != http.StatusUnauthorized {
			t.Errorf("%.60q: got %v, %v", secret, p, err)
		}
	}
}

// TestChangesHoldAtOnce revokes keys while many goroutines use them: no use that
// begins after the revocation was answered may succeed, whatever is cached.
func TestChangesHoldAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for round := range 4 {
		id, secret := w.key(t, fmt.Sprint("round ", round), "", resource.OrgDeveloper, "")
		stop := make(chan struct{})
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = w.Authenticate(t.Context(), secret) // either answer is right while the key goes
					}
				}
			})
		}
		if _, err := w.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		admin, err := w.Authenticate(t.Context(), w.admin)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Revoke(rest.WithCaller(t.Context(), admin), &api.KeyRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := w.Authenticate(t.Context(), secret); err == nil {
				t.Fatalf("round %d: a revoked key works", round)
			}
		}
		close(stop)
		users.Wait()
	}
}

func TestLimitOfKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	err := w.db.Update(t.Context(), func(tx *store.Tx) error {
		for i := range 999 {
			k := &resource.APIKey{ID: resource.KeyID(fmt.Sprint("many-", i)), Name: "x", Hash: fmt.Append(nil, i), ProjectID: "proj-1", CreatedAt: w.kit.Now()}
			if err := store.Keys.Insert(tx, string(k.ID), k); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.status(t, w.admin, "POST", "/api-keys", `{"name":"one more"}`); got != http.StatusConflict {
		t.Errorf("got %d", got)
	}
	if got := w.status(t, w.admin, "DELETE", "/api-keys/many-0", ""); got != http.StatusNoContent {
		t.Errorf("got %d", got)
	}
	if got := w.status(t, w.admin, "POST", "/api-keys", `{"name":"one more"}`); got != http.StatusCreated {
		t.Errorf("got %d", got)
	}
}

func TestPrivateProjectsAreForMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, secret := w.key(t, "member", "user-7", resource.OrgDeveloper, "")
	count := func() int {
		p, err := w.Authenticate(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		list, err := w.Projects(rest.WithCaller(t.Context(), p), &api.Paging{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Data)
	}
	before := count()
	err := w.db.Update(t.Context(), func(tx *store.Tx) error {
		m := &resource.Membership{ProjectID: "proj-other", UserID: "user-7", Role: resource.ProjectEditor}
		return store.Memberships.Insert(tx, resource.MembershipID(m.ProjectID, m.UserID), m)
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := count(); before != 1 || after != 2 {
		t.Errorf("got %d projects, as a member %d", before, after)
	}
}

// TestLastUse runs in synthetic time: uses are written together a little later,
// at most once a minute for a key, and the rest at the end.
func TestLastUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := storetest.Open(t)
		s := identity.New(kit.Kit{Now: time.Now, NewID: func(p string) string { return fmt.Sprint(p, time.Now().UnixNano()) }, Log: slog.New(slog.DiscardHandler)}, db)
		_, secret, err := s.Bootstrap(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		second, other, err := s.CreateKey(t.Context(), identity.KeySpec{Name: "other"})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		use := func(secret string) {
			if _, err := s.Authenticate(context.Background(), secret); err != nil {
				t.Fatal(err)
			}
		}
		written := func(id string) (at time.Duration) {
			synctest.Wait()
			err := db.View(func(tx *store.Tx) error {
				k, err := store.Keys.Get(tx, id)
				if at = -1; err == nil && k.LastUsedAt != nil {
					at = k.LastUsedAt.Sub(start)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		id := string(second.ID)
		commits := db.Stats().Commits
		use(secret)
		use(other)
		if got := written(id); got != -1 {
			t.Errorf("written on the way of the request: %s", got)
		}
		<-time.After(11 * time.Second)
		if got, n := written(id), db.Stats().Commits-commits; got != 0 || n != 1 {
			t.Errorf("after the delay: got %s in %d commits", got, n)
		}
		use(other) // within the minute
		<-time.After(30 * time.Second)
		if got := written(id); got != 0 {
			t.Errorf("within the minute: got %s", got)
		}
		<-time.After(19 * time.Second)
		use(other) // a minute after the first
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := written(id); got != time.Minute {
			t.Errorf("after the end: got %s", got)
		}
		use(other) // not noted any more, and no harm
		if err := s.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	})
}
