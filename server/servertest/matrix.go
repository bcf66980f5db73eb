package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"athanor/server/rest"
)

// Matrix is what CheckAuthMatrix needs to know about the server under test.
type Matrix struct {
	Do  func(*http.Request) (*http.Response, error)
	Ops []rest.Op

	// Key makes a live key of the main project with these roles.
	Key func(orgRole, projectRole string) string
	// Secrets that must not work, although they once did.
	Expired, Revoked string
	// Foreign is a live key of another project with all rights there.
	Foreign string
	// Existing gives the id of a thing of the main project for a parameter of
	// the operation's path, "" where the operation has no such thing.
	Existing func(op rest.Op, param string) string
}

// roles are all pairs that a key may carry.
var roles = []struct{ org, project string }{
	{rest.RoleAdmin, rest.RoleAdmin}, {rest.RoleAdmin, rest.RoleEditor}, {rest.RoleAdmin, ""},
	{rest.RoleDeveloper, rest.RoleAdmin}, {rest.RoleDeveloper, rest.RoleEditor}, {rest.RoleDeveloper, ""},
}

// badCredentials are the Authorization headers that get 401 with a code.
func (m *Matrix) badCredentials() map[string]struct{ header, code string } {
	return map[string]struct{ header, code string }{
		"no key":       {"", "missing_api_key"},
		"empty key":    {"Bearer ", "missing_api_key"},
		"bad key":      {"Bearer ath_" + strings.Repeat("0", 43), "invalid_api_key"},
		"not a key":    {"Bearer hello", "invalid_api_key"},
		"other scheme": {"Basic YTpi", "invalid_api_key"},
		"two keys":     {"Bearer a b", "invalid_api_key"},
		"expired":      {"Bearer " + m.Expired, "invalid_api_key"},
		"revoked":      {"Bearer " + m.Revoked, "invalid_api_key"},
	}
}

// CheckAuthMatrix crosses every operation, under every base, with every kind of
// caller. Bad credentials get 401 before anything else is looked at; a caller
// gets 403 exactly where the operation's Access says so; a key of another
// project never reaches a thing of this one. Requests name things that do not
// exist and carry an empty object, so nothing is changed. An operation for signed
// links refuses everyone who comes without one, whatever key they have.
func CheckAuthMatrix(t *testing.T, m Matrix) {
	t.Helper()
	if len(m.Ops) == 0 {
		t.Fatal("no operations to check")
	}
	keys := make([]string, len(roles))
	for i, r := range roles {
		keys[i] = m.Key(r.org, r.project)
	}
	for _, op := range m.Ops {
		for _, base := range rest.Prefixes() {
			t.Run(op.Method+" "+base+op.Path, func(t *testing.T) {
				problems, err := m.check(t.Context(), op, base, keys)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range problems {
					t.Error(p)
				}
			})
		}
	}
}

// check tries one operation with every caller and says what is wrong.
func (m *Matrix) check(ctx context.Context, op rest.Op, base string, keys []string) (problems []string, _ error) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	try := func(path, authorization, body string) (outcome, error) {
		got, err := m.send(ctx, op, base+path, authorization, body)
		if err == nil && got.id == "" {
			complain("%s: no x-request-id", path)
		}
		if err == nil && op.Inference != (got.reset != "") {
			complain("%s: got x-ratelimit-reset %q, inference: %v", path, got.reset, op.Inference)
		}
		return got, err
	}
	missing, _ := m.path(op, false)
	if op.Access.ByLink() {
		return problems, m.checkLink(op, try, keys, complain)
	}
	for name, bad := range m.badCredentials() {
		got, err := try(missing, bad.header, "{not JSON")
		if err != nil {
			return nil, err
		}
		if got.status != http.StatusUnauthorized || got.code != bad.code {
			complain("%s: got %d %s, want 401 %s", name, got.status, got.code, bad.code)
		}
	}
	for i, r := range roles {
		got, err := try(missing, "Bearer "+keys[i], "{}")
		if err != nil {
			return nil, err
		}
		allowed := op.Access.Allows(&rest.Principal{OrgRole: r.org, ProjectRole: r.project})
		refused := got.status == http.StatusForbidden
		if refused == allowed || got.status == http.StatusUnauthorized || got.status >= 500 {
			complain("organization %q, project %q: got %d %s, allowed: %v", r.org, r.project, got.status, got.code, allowed)
		}
	}
	existing, all := m.path(op, true)
	if !all {
		return problems, nil
	}
	got, err := try(existing, "Bearer "+m.Foreign, "{}")
	if err != nil {
		return nil, err
	}
	if got.status != http.StatusForbidden && got.status != http.StatusNotFound {
		complain("key of another project on %s: got %d, want 403 or 404", existing, got.status)
	}
	return problems, nil
}

// checkLink tries an operation for signed links without one, and with links
// that the server has not made or that are over.
func (m *Matrix) checkLink(op rest.Op, try func(path, authorization, body string) (outcome, error), keys []string, complain func(string, ...any)) error {
	path, _ := m.path(op, true)
	headers := []string{"", "Bearer " + m.Foreign}
	for _, k := range keys {
		headers = append(headers, "Bearer "+k)
	}
	for _, query := range []string{"", "?expires=99999999999", "?expires=99999999999&signature=AAAA", "?expires=1&signature=AAAA", "?signature=AAAA"} {
		for _, h := range headers {
			got, err := try(path+query, h, "{}")
			if err != nil {
				return err
			}
			if got.status != http.StatusUnauthorized || got.code != "invalid_signature" {
				complain("%s with authorization %q: got %d %s, want 401 invalid_signature", path+query, h, got.status, got.code)
			}
		}
	}
	return nil
}

// path fills the operation's parameters. all reports whether there are any and
// each names a thing that exists.
func (m *Matrix) path(op rest.Op, existing bool) (path string, all bool) {
	path, all = op.Path, len(op.Params()) > 0
	for _, p := range op.Params() {
		id := "does-not-exist"
		if existing {
			if found := m.Existing(op, p); found != "" {
				id = found
			} else {
				all = false
			}
		}
		path = strings.NewReplacer(":"+p, id, "*"+p, id).Replace(path)
	}
	return path, all
}

// outcome is what counts of a response.
type outcome struct {
	status          int
	code, id, reset string
}

func (m *Matrix) send(ctx context.Context, op rest.Op, path, authorization, body string) (outcome, error) {
	req, err := http.NewRequestWithContext(ctx, op.Method, "http://athanor"+path, strings.NewReader(body))
	if err != nil {
		return outcome{}, err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := m.Do(req)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", path, err)
	}
	data, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return outcome{}, fmt.Errorf("%s: %w", path, err)
	}
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if resp.StatusCode >= 400 {
		if err := json.Unmarshal(data, &e); err != nil {
			return outcome{}, fmt.Errorf("%s: %d without an error body: %q", path, resp.StatusCode, data)
		}
	}
	return outcome{resp.StatusCode, e.Error.Code, resp.Header.Get("X-Request-Id"), resp.Header.Get("X-Ratelimit-Reset")}, nil
}
