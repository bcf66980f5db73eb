package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"athanor/server/api"
	"athanor/server/kit"
)

// Config is what a Server is made of.
type Config struct {
	Ops      []Op
	Auth     Authenticator
	Kit      kit.Kit
	Observe  func(Sample)                            // called once per request, after its last byte; may be nil
	MapError func(error) *api.Error                  // the errors of lower layers; nil means "not known"
	Ready    func(context.Context) error             // GET /readyz: why it is not ready; nil func means always
	Metrics  func(io.Writer) (ctype string, _ error) // GET /metrics; nil func means no such route
	Limits   Limits
}

// Limits bound what clients can cost. A zero field takes its default.
type Limits struct {
	Body   int64         // bytes of a request body, default 32 MiB
	Header int           // bytes of a request's head, default 32 KiB
	Read   time.Duration // without a byte of an expected request, default 30 s
	Write  time.Duration // without room for the next bytes of a response, default 30 s
	Idle   time.Duration // between two requests, default 2 min
	Conns  int           // connections at once, default 16,384
}

func (l Limits) withDefaults() Limits {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Read, 30*time.Second)
	def(&l.Write, 30*time.Second)
	def(&l.Idle, 2*time.Minute)
	if l.Body == 0 {
		l.Body = 32 << 20
	}
	if l.Header == 0 {
		l.Header = 32 << 10
	}
	if l.Conns == 0 {
		l.Conns = 16 << 10
	}
	return l
}

// ErrClosed is returned by Serve once Shutdown was called.
var ErrClosed = errors.New("rest: the server is shut down")

// errDraining answers requests and ends streams during shutdown.
var errDraining = api.Overloaded(time.Second, "the server is shutting down")

// Server serves a table of operations. Its methods may be called by any
// goroutine; it cannot be used again after Shutdown.
type Server struct {
	ops      []Op
	auth     Authenticator
	kit      kit.Kit
	log      *slog.Logger
	observe  func(Sample)
	mapError func(error) *api.Error
	limits   Limits
	app      *fiber.App
	http     *fasthttp.Server
	base     context.Context // of every request
	cancel   context.CancelCauseFunc
	draining chan struct{} // closed by Shutdown

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	conns     map[*conn]struct{}
	streams   map[*Events]struct{}
	watcher   *watcher // while serving
}

// New checks the table and makes a server that is ready to serve.
func New(cfg Config) (*Server, error) {
	ops, err := table(cfg.Ops)
	if err != nil {
		return nil, err
	}
	if cfg.Auth == nil || cfg.Kit.Now == nil || cfg.Kit.NewID == nil || cfg.Kit.Log == nil {
		return nil, errors.New("rest: Auth and all of Kit are needed")
	}
	s := &Server{
		ops: ops, auth: cfg.Auth, kit: cfg.Kit, log: cfg.Kit.Log, observe: cfg.Observe, mapError: cfg.MapError,
		limits: cfg.Limits.withDefaults(), draining: make(chan struct{}),
		conns: map[*conn]struct{}{}, streams: map[*Events]struct{}{},
	}
	s.base, s.cancel = context.WithCancelCause(context.Background())
	s.app = fiber.New(fiber.Config{
		DisableStartupMessage:        true,
		CaseSensitive:                true,
		Immutable:                    true,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		BodyLimit:                    math.MaxInt, // ours is checked while reading; fasthttp does not enforce its own on streams
		ReadBufferSize:               s.limits.Header,
		ReadTimeout:                  s.limits.Read,
		IdleTimeout:                  s.limits.Idle,
		Concurrency:                  s.limits.Conns,
		ErrorHandler:                 s.unrouted,
	})
	s.route(cfg)
	route := s.app.Handler()
	s.http = s.app.Server()
	s.http.CloseOnShutdown = true
	s.http.Handler = func(rc *fasthttp.RequestCtx) { s.handle(rc, route) }
	return s, nil
}

// Ops is the table in the order of matching.
func (s *Server) Ops() []Op { return append([]Op(nil), s.ops...) }

// Prefixes are the bases under which every operation is served.
func Prefixes() []string { return []string{"/v1", "/v2"} }

func (s *Server) route(cfg Config) {
	for _, prefix := range Prefixes() {
		for i := range s.ops {
			op := &s.ops[i]
			s.app.Add(op.Method, prefix+pattern(op.Path), func(c *fiber.Ctx) error {
				s.exchange(c).serve(op, func(name string) string {
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
	if x.events == nil {
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

// Serve accepts connections until Shutdown and then returns ErrClosed. It may
// be called with several listeners; a TLS listener is the caller's to make.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.watch(ln); err != nil {
		return errors.Join(err, ln.Close())
	}
	err := s.http.Serve(&listener{ln, s})
	if s.isDraining() {
		return ErrClosed
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

func (s *Server) watch(ln net.Listener) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return ErrClosed
	}
	if s.watcher == nil {
		if s.watcher, err = newWatcher(); err != nil {
			return err
		}
	}
	s.listeners = append(s.listeners, ln)
	return nil
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// open registers a stream, unless the server is shutting down.
func (s *Server) open(ev *Events) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return false
	}
	s.streams[ev] = struct{}{}
	return true
}

func (s *Server) shut(ev *Events) {
	s.mu.Lock()
	delete(s.streams, ev)
	s.mu.Unlock()
}

// Shutdown stops accepting, ends the streams with an error event, and waits
// for the other requests. When ctx ends first, their contexts are cancelled
// and their connections closed, and its error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.isDraining() {
		s.mu.Unlock()
		return ErrClosed
	}
	close(s.draining)
	for _, ln := range s.listeners {
		_ = ln.Close() // fasthttp closes it once more
	}
	streams := make([]*Events, 0, len(s.streams))
	for ev := range s.streams {
		streams = append(streams, ev)
	}
	s.mu.Unlock()
	for _, ev := range streams {
		ev.abort(errDraining)
	}
	s.closeConns(func(c *conn) bool { return !c.used.Load() })
	err := s.http.ShutdownWithContext(ctx)
	if ctx.Err() == nil {
		err = nil // what is left is that a listener was closed twice
	}
	s.cancel(errDraining)
	s.closeConns(func(*conn) bool { return true })
	s.mu.Lock()
	w := s.watcher
	s.watcher = nil
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
	return err
}

// closeConns closes the connections that match, without lingering.
func (s *Server) closeConns(match func(*conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if match(c) {
			_ = c.Conn.Close()
		}
	}
}

// Test serves one request over a connection in memory, without a listener.
// The response's body must be closed; a stream can be read as it comes.
func (s *Server) Test(r *http.Request) (*http.Response, error) {
	client, server := net.Pipe()
	go func() { _ = s.http.ServeConn(s.track(server)) }()
	go func() { _ = r.Write(client) }() // fails when the server answers before the end, which is its right
	resp, err := http.ReadResponse(bufio.NewReader(client), r)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	resp.Body = &testBody{resp.Body, client}
	return resp, nil
}

// testBody closes the connection with the body.
type testBody struct {
	io.ReadCloser
	conn net.Conn
}

func (b *testBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.conn.Close()) }
