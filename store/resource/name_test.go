package resource_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"athanor/store/resource"
)

func TestNames(t *testing.T) {
	t.Parallel()
	name, slug, model := resource.ValidateName, resource.ValidateSlug, resource.ValidateModelName
	tests := []struct {
		what  string
		check func(string) error
		in    string
		want  string // part of the error; "" for a good name
	}{
		{"name", name, "Default project", ""},
		{"name", name, "Große Anlage 7 — 木", ""},
		{"name", name, strings.Repeat("ü", 100), ""},
		{"name", name, "", "empty"},
		{"name", name, strings.Repeat("ü", 101), "101 characters"},
		{"name", name, " a", "space"},
		{"name", name, "a\u00a0", "space"},
		{"name", name, "a\nb", "U+000A"},
		{"name", name, "a\x00b", "U+0000"},
		{"name", name, "a\u202eb", "U+202E"}, // turns the text around it
		{"name", name, "a\xffb", "UTF-8"},

		{"slug", slug, "a", ""},
		{"slug", slug, "0-a-9", ""},
		{"slug", slug, strings.Repeat("a", 63), ""},
		{"slug", slug, "", "empty"},
		{"slug", slug, strings.Repeat("a", 64), "64 bytes"},
		{"slug", slug, "-a", "begins or ends"},
		{"slug", slug, "a-", "begins or ends"},
		{"slug", slug, "Ab", `'A'`},
		{"slug", slug, "a.b", `'.'`},
		{"slug", slug, "ä", `'ä'`},

		{"model", model, "athanor-mini", ""},
		{"model", model, "meta-llama/Llama-3.2_1B", ""},
		{"model", model, "a/b/c/d", ""},
		{"model", model, "", "empty"},
		{"model", model, strings.Repeat("a", 201), "201 bytes"},
		{"model", model, "a/b/c/d/e", "5 parts"},
		{"model", model, "a//b", "empty"},
		{"model", model, "/a", "empty"},
		{"model", model, "a/", "empty"},
		{"model", model, "../a", "begin with"},
		{"model", model, "a/.git", "begin with"},
		{"model", model, "llama:adapter", `':'`},
		{"model", model, "a b", `' '`},
		{"model", model, "a\x00b", `'\x00'`},
		{"model", model, "modèle", `'è'`},
	}
	for _, tt := range tests {
		err := tt.check(tt.in)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s %q: %v", tt.what, tt.in, err)
			}
			continue
		}
		if !errors.Is(err, resource.ErrInvalidName) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: %v, want ErrInvalidName with %q", tt.what, tt.in, err, tt.want)
		}
	}
}

// Whatever passes is safe in a key, a header and a log line.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "-", "\x00", "ü", "\xff", "a\u2028b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, slug, model := resource.ValidateName(s), resource.ValidateSlug(s), resource.ValidateModelName(s)
		if name == nil && (!utf8.ValidString(s) || strings.ContainsAny(s, "\x00\r\n\t\x1b\x7f")) {
			t.Errorf("ValidateName lets %q pass", s)
		}
		if slug == nil && (strings.ContainsAny(s, "/.:_ ") || strings.ToLower(s) != s) {
			t.Errorf("ValidateSlug lets %q pass", s)
		}
		if model == nil && (strings.Contains(s, "..") && strings.Contains(s, "/..") || strings.ContainsAny(s, ": \x00\\%?#")) {
			t.Errorf("ValidateModelName lets %q pass", s)
		}
		if slug == nil && model != nil {
			t.Errorf("%q is a slug but no model name", s)
		}
	})
}
