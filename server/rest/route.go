package rest

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"athanor/server/api"
)

// Ops is the table in the order of matching.
func (s *Server) Ops() []Op { return append([]Op(nil), s.ops...) }

// Prefixes are the bases under which every operation is served.
func Prefixes() []string { return []string{"/v1", "/v2"} }

func (s *Server) route(cfg Config) {
	for _, prefix := range Prefixes() {
		for i := range s.ops {
			op := &s.ops[i]
			s.app.Add(op.Method, prefix+pattern(op.Path), func(c *fiber.Ctx) error {
				s.exchange(c).serve(op, prefix, func(name string) string {
					if lastSegment(op.Path) == "*"+name {
						name = "+"
					}
					return unescape(c.Params(name))
				})
				return nil
			})
		}
	}
	s.probes(cfg)
}

type exchangeKey struct{}

// handle is the way of every request: it opens the exchange, lets fiber route
// it, and sees to it that there is an answer and that no body is left over.
func (s *Server) handle(rc *fasthttp.RequestCtx, route fasthttp.RequestHandler) {
	x := s.begin(rc)
	rc.SetUserValue(exchangeKey{}, x)
	defer rc.RemoveUserValue(exchangeKey{}) // fasthttp keeps it for the connection's next request
	if ambiguous(rc) {
		x.fail(api.Invalid("", "a request may not have both content-length and transfer-encoding"))
		rc.SetConnectionClose()
	} else {
		route(rc)
	}
	if x.status == 0 { // fiber answers a method that it does not know by itself
		x.fail(methodNotAllowed(rc))
	}
	x.guard()
	if s.isDraining() {
		rc.SetConnectionClose()
	}
	if x.events == nil && x.body == nil {
		x.end()
	}
}

// ambiguous finds a request that gives the length of its body in two ways:
// whoever stands before this server may have believed the other one. fasthttp
// has dropped the length by now, but not from the raw head.
func ambiguous(rc *fasthttp.RequestCtx) bool {
	h := &rc.Request.Header
	if h.ContentLength() != -1 {
		return false
	}
	for line := range bytes.Lines(h.RawHeaders()) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(bytes.TrimSpace(name), []byte("content-length")) {
			return true
		}
	}
	return false
}

func (s *Server) exchange(c *fiber.Ctx) *exchange {
	x, _ := c.Context().UserValue(exchangeKey{}).(*exchange)
	return x
}

// unrouted answers what reached no operation: unknown routes and methods, and
// requests that fasthttp could not read.
func (s *Server) unrouted(c *fiber.Ctx, err error) error {
	x := s.exchange(c)
	if x == nil { // not readable: handle never saw it
		x = s.begin(c.Context())
		defer x.end()
	}
	status := http.StatusBadRequest
	var fe *fiber.Error
	if errors.As(err, &fe) {
		status = fe.Code
	}
	rc := c.Context()
	switch status {
	case http.StatusNotFound:
		x.fail(api.New(status, api.TypeInvalidRequest, "unknown_url", "unknown request URL: %s %s", rc.Method(), clip(rc.Path())))
	case http.StatusMethodNotAllowed:
		x.fail(methodNotAllowed(rc))
	case http.StatusRequestHeaderFieldsTooLarge:
		x.fail(api.New(status, api.TypeTooLarge, "request_header_too_large", "the request head is larger than %d bytes", s.limits.Header))
	case http.StatusRequestTimeout:
		x.fail(api.New(status, api.TypeInvalidRequest, "request_timeout", "the request did not come within %s", s.limits.Read))
	default:
		x.fail(api.New(http.StatusBadRequest, api.TypeInvalidRequest, "malformed_request", "the request is not valid HTTP"))
	}
	return nil
}

func methodNotAllowed(rc *fasthttp.RequestCtx) *api.Error {
	return api.New(http.StatusMethodNotAllowed, api.TypeInvalidRequest, "method_not_allowed",
		"%s is not allowed for %s", clip(rc.Method()), clip(rc.Path()))
}

// clip bounds a client's text in a message.
func clip(b []byte) string {
	const most = 200
	if len(b) > most {
		return string(b[:most]) + "..."
	}
	return string(b)
}

// unescape reads a path parameter as it came, with percent signs.
func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}
