package rest

import "context"

// The roles that a key carries. An organisation's member is admin or
// developer; a project's collaborator is admin or editor, or has no role.
const (
	RoleAdmin     = "admin"
	RoleDeveloper = "developer"
	RoleEditor    = "editor"
)

// Principal is who a request comes from: a key, its project and its roles.
type Principal struct {
	KeyID            string
	UserID           string // empty for a key that belongs to no person
	ProjectID        string
	ProjectName      string
	ProjectSlug      string
	OrganizationID   string
	OrganizationName string
	OrgRole          string // RoleAdmin or RoleDeveloper
	ProjectRole      string // RoleAdmin, RoleEditor or ""
}

// Authenticator finds the caller behind the key of an Authorization header.
// An error is a *api.Error with status 401, or else it counts as internal.
// It is called by many goroutines at once, once per request.
type Authenticator interface {
	Authenticate(ctx context.Context, key string) (*Principal, error)
}

// Access is what an operation needs from its caller. The zero Access allows
// nobody and New refuses it, so that no route can be left without an entry.
type Access struct {
	name   string
	allows func(*Principal) bool
}

// The kinds of access. An administrator of the organisation may do everything
// in each of its projects.
var (
	// AnyKey asks for a valid key and no role.
	AnyKey = Access{"any key", func(*Principal) bool { return true }}
	// ProjectEditor asks for an admin or an editor of the key's project.
	ProjectEditor = Access{"project editor", func(p *Principal) bool {
		return p.OrgRole == RoleAdmin || p.ProjectRole == RoleAdmin || p.ProjectRole == RoleEditor
	}}
	// ProjectAdmin asks for an admin of the key's project.
	ProjectAdmin = Access{"project admin", func(p *Principal) bool {
		return p.OrgRole == RoleAdmin || p.ProjectRole == RoleAdmin
	}}
	// OrgAdmin asks for an admin of the organisation.
	OrgAdmin = Access{"organization admin", func(p *Principal) bool { return p.OrgRole == RoleAdmin }}
	// Signed asks for no key, which is not even looked at, but for a link that
	// the server has signed for this method and path (see Links). The operation
	// has no Caller.
	Signed = Access{"signed link", func(*Principal) bool { return false }}
)

// ByLink reports whether a signed link is asked for, instead of a key.
func (a Access) ByLink() bool { return a.name == Signed.name }

// Allows reports whether p may do what asks for this access.
func (a Access) Allows(p *Principal) bool { return a.allows != nil && p != nil && a.allows(p) }

// String names the role that is asked for.
func (a Access) String() string { return a.name }

type callKey struct{}

// call is what a handler may learn about its request.
type call struct {
	id     string
	agent  string
	base   string // see BaseURL
	caller *Principal
}

// Caller is who the request comes from; nil outside a request.
func Caller(ctx context.Context) *Principal {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.caller
	}
	return nil
}

// RequestID is the x-request-id of the response; empty outside a request.
func RequestID(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.id
	}
	return ""
}

// UserAgent is the request's User-Agent header; empty outside a request.
func UserAgent(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.agent
	}
	return ""
}

// WithCaller returns a context in which Caller gives p, for whoever calls an
// operation's function without a server: another part of the program, a test.
func WithCaller(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, callKey{}, &call{caller: p})
}
