package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
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
	Page     []byte                                  // GET /, HTML; nil means no such route
	Limits   Limits
	Links    *Links // checks the links of operations with the access Signed; nil refuses them all
}

// Limits bound what clients can cost. A zero field takes its default.
type Limits struct {
	Body   int64         // bytes of a request body, default 32 MiB
	Header int           // bytes of a request's head, default 32 KiB
	Read   time.Duration // without a byte of an expected request, default 30 s
	Write  time.Duration // without room for the next bytes of a response, default 30 s
	Idle   time.Duration // between two requests, default 2 min
	Conns  int           // connections at once, default 16,384
	Drain  time.Duration // running streams at shutdown, default 0: they end at once
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
	links    *Links
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
		ops: ops, auth: cfg.Auth, links: cfg.Links, kit: cfg.Kit, log: cfg.Kit.Log, observe: cfg.Observe, mapError: cfg.MapError,
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

// Shutdown stops accepting, lets streaming operations run on for Limits.Drain,
// ends those that still run with an error event, and waits for the other
// requests. When ctx ends first, their contexts are cancelled and their
// connections closed, and its error is returned.
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
	s.mu.Unlock()
	s.awaitStreams(ctx)
	for _, ev := range s.openStreams() {
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

// awaitStreams waits until no operation streams, Limits.Drain is over or ctx
// ends.
func (s *Server) awaitStreams(ctx context.Context) {
	late := time.NewTimer(s.limits.Drain)
	defer late.Stop()
	for _, ev := range s.openStreams() {
		select {
		case <-ev.done:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) openStreams() []*Events {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Events, 0, len(s.streams))
	for ev := range s.streams {
		list = append(list, ev)
	}
	return list
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
