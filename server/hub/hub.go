package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Errors that callers tell apart.
var (
	// ErrAuth: the hub wants a token, or the token may not do this. Hubs answer so
	// for repositories that do not exist, too, when no token is given.
	ErrAuth = errors.New("the hub refuses access")
	// ErrNotFound: there is no such repository, revision or file.
	ErrNotFound = errors.New("not on the hub")
	// ErrCorrupt: what arrived is not what the hub announced.
	ErrCorrupt = errors.New("the content differs from what the hub announced")
)

// Limits bound what is fetched. A zero field takes its default.
type Limits struct {
	Files int           // of a repository, default 10000
	Bytes int64         // of all files together, default 2 TiB
	Tries int           // in a row without progress, default 5
	Wait  time.Duration // longest wait between tries, default 1 min
}

func (l Limits) withDefaults() Limits {
	if l.Files == 0 {
		l.Files = 10000
	}
	if l.Bytes == 0 {
		l.Bytes = 2 << 40
	}
	if l.Tries == 0 {
		l.Tries = 5
	}
	if l.Wait == 0 {
		l.Wait = time.Minute
	}
	return l
}

// Config is what a Client needs.
type Config struct {
	BaseURL string       // like https://huggingface.co
	HTTP    *http.Client // bounds connections and answers
	// Keep says which files Fetch takes, by path; nil takes all.
	Keep   func(path string) bool
	Limits Limits
}

// Client speaks to one hub. Its methods may be called by any goroutine.
type Client struct {
	base   string // without a slash at its end
	http   *http.Client
	keep   func(path string) bool
	limits Limits
	wait   func(ctx context.Context, d time.Duration) error
}

// New makes a Client. The base URL was checked with the configuration.
func New(cfg Config) *Client {
	own := *cfg.HTTP
	own.CheckRedirect = withoutToken(cfg.HTTP.CheckRedirect)
	c := &Client{base: strings.TrimRight(cfg.BaseURL, "/"), http: &own, keep: cfg.Keep, limits: cfg.Limits.withDefaults(), wait: sleep}
	if c.keep == nil {
		c.keep = func(string) bool { return true }
	}
	return c
}

// withoutToken takes the token off a redirect to another host, also to one below
// the hub's name, to which net/http would send it.
func withoutToken(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
			req.Header.Del("Authorization")
		}
		if next != nil {
			return next(req, via)
		}
		if len(via) >= 10 {
			return errors.New("more than 10 redirects")
		}
		return nil
	}
}

// sleep waits, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Progress is told bytes done of total, in order and from one goroutine.
type Progress func(done, total int64)

const maxRepo = 96 // bytes of an owner or a name

// ValidateRepo checks "owner/name" or "name".
func ValidateRepo(repo string) error {
	parts := strings.Split(repo, "/")
	if len(parts) > 2 {
		return fmt.Errorf("%.200q is not a repository: it must be owner/name", repo)
	}
	for _, p := range parts {
		plain := strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
		if p == "" || len(p) > maxRepo || !plain || strings.Trim(p, ".") == "" || strings.Contains(p, "..") {
			return fmt.Errorf("%.200q is not a repository: it must be owner/name, of letters, digits, dots, dashes and underscores", repo)
		}
	}
	return nil
}

// validateRevision checks a branch, a tag or a commit.
func validateRevision(rev string) error {
	if rev == "" || len(rev) > 256 || strings.Contains(rev, "..") || strings.ContainsFunc(rev, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return fmt.Errorf("%.200q is not a revision", rev)
	}
	return nil
}

// escape makes a path of slashes one of a URL.
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
