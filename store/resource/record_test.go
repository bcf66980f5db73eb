package resource_test

import (
	"errors"
	"testing"
	"time"

	"athanor/store/resource"
)

func TestAPIKeyActive(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	past, future := now.Add(-1), now.Add(1)
	tests := []struct {
		name             string
		expires, revoked *time.Time
		want             error
	}{
		{"for ever", nil, nil, nil},
		{"not yet expired", &future, nil, nil},
		{"expires now", &now, nil, resource.ErrKeyExpired},
		{"expired", &past, nil, resource.ErrKeyExpired},
		{"revoked", nil, &past, resource.ErrKeyRevoked},
		{"revoked and expired", &past, &past, resource.ErrKeyRevoked},
	}
	for _, tt := range tests {
		k := &resource.APIKey{ExpiresAt: tt.expires, RevokedAt: tt.revoked}
		if err := k.Active(now); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	org := map[[2]resource.OrgRole]bool{
		{resource.OrgAdmin, resource.OrgAdmin}:         true,
		{resource.OrgAdmin, resource.OrgDeveloper}:     true,
		{resource.OrgDeveloper, resource.OrgDeveloper}: true,
	}
	for _, have := range []resource.OrgRole{"", "root", resource.OrgAdmin, resource.OrgDeveloper} {
		for _, need := range []resource.OrgRole{"", "root", resource.OrgAdmin, resource.OrgDeveloper} {
			if got, want := have.Allows(need), org[[2]resource.OrgRole{have, need}]; got != want {
				t.Errorf("organisation role %q allows %q: %v, want %v", have, need, got, want)
			}
		}
	}
	project := map[[2]resource.ProjectRole]bool{
		{resource.ProjectAdmin, resource.ProjectAdmin}:   true,
		{resource.ProjectAdmin, resource.ProjectEditor}:  true,
		{resource.ProjectEditor, resource.ProjectEditor}: true,
	}
	for _, have := range []resource.ProjectRole{"", "root", resource.ProjectAdmin, resource.ProjectEditor} {
		for _, need := range []resource.ProjectRole{"", "root", resource.ProjectAdmin, resource.ProjectEditor} {
			if got, want := have.Allows(need), project[[2]resource.ProjectRole{have, need}]; got != want {
				t.Errorf("project role %q allows %q: %v, want %v", have, need, got, want)
			}
		}
	}
}

func TestEnumerationsAreClosed(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]func(string) bool{
		"visibility":   func(s string) bool { return resource.Visibility(s).Valid() },
		"model type":   func(s string) bool { return resource.ModelType(s).Valid() },
		"quantization": func(s string) bool { return resource.Quantization(s).Valid() },
	} {
		for _, s := range []string{"", "Open", "CHAT", "int2"} {
			if valid(s) {
				t.Errorf("%s %q is valid", name, s)
			}
		}
	}
	if !resource.VisibilityPrivate.Valid() || !resource.ModelTranscribe.Valid() || !resource.QuantizationInt4.Valid() {
		t.Error("a declared value is not valid")
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	m := &resource.Model{Files: []resource.ModelFile{{Size: 3}, {Size: 1 << 40}}}
	if got, want := m.Size(), int64(1<<40+3); got != want {
		t.Errorf("Size = %d, want %d", got, want)
	}
	if !m.VisibleTo("a") {
		t.Error("a model without a project is not visible to all")
	}
	m.ProjectID = "a"
	if !m.VisibleTo("a") || m.VisibleTo("b") || m.VisibleTo("") {
		t.Error("a model of project a is visible elsewhere, or not there")
	}
}
