package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"athanor/engine"
)

// Server is the child's side of the protocol.
type Server struct {
	Generator engine.Generator
	// DrainTimeout is how long requests in flight may run on after the end of
	// Serve's context; then they are cut with an error record. 0 means 10 s.
	DrainTimeout time.Duration
	Log          *slog.Logger // nil means slog.Default()
}

const (
	defaultDrain = 10 * time.Second
	// cutTime is what requests get to return once they are cut.
	cutTime = 2 * time.Second
	// writeTimeout frees the slot of a request whose reader stands still; it is
	// renewed at most every writeRenew because each renewal costs a timer.
	writeTimeout = time.Minute
	writeRenew   = time.Second
)

// Serve answers on ln until ctx ends, then drains: it stops accepting, lets
// requests in flight finish within 10 s, cuts the rest and returns nil. It
// closes ln.
func Serve(ctx context.Context, ln net.Listener, gen engine.Generator) error {
	return (&Server{Generator: gen}).Serve(ctx, ln)
}

// Serve is the function Serve with the settings of s.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	running, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /info", s.info)
	mux.HandleFunc("POST /generate", s.generate)
	fresh := unused{conns: map[net.Conn]struct{}{}}
	srv := &http.Server{
		Handler:           mux,
		ConnState:         fresh.note,
		BaseContext:       func(net.Listener) context.Context { return running },
		ReadHeaderTimeout: writeTimeout,
		WriteTimeout:      writeTimeout, // renewed by stream
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log().Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve worker socket: %w", err)
	case <-ctx.Done():
	}
	fresh.close()
	err := s.drain(srv, cut)
	<-failed
	return err
}

// unused holds the connections on which no request has begun. A client opens
// some in vain, when another one comes free first, and Shutdown would wait for
// them as if they were busy until they are five seconds old.
type unused struct {
	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]struct{}
	closed bool
}

func (u *unused) note(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		_ = c.Close()
	default:
		u.conns[c] = struct{}{}
	}
}

// close closes them, and those that still come.
func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close()
	}
}

func (s *Server) drain(srv *http.Server, cut context.CancelFunc) error {
	limit := s.DrainTimeout
	if limit <= 0 {
		limit = defaultDrain
	}
	soft, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := srv.Shutdown(soft)
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.log().Warn("requests still run after the drain time and are cut", "limit", limit)
	cut()
	hard, cancel := context.WithTimeout(context.Background(), cutTime)
	defer cancel()
	if err := srv.Shutdown(hard); err != nil {
		return errors.Join(fmt.Errorf("requests did not stop: %w", err), srv.Close())
	}
	return nil
}

func (s *Server) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.Default()
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) info(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Generator.Model())
}

// generate runs one request. The whole body is read before the work starts:
// only then does net/http watch the connection and end the context when the
// client goes away.
func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	if err != nil {
		if tooBig := new(http.MaxBytesError); errors.As(err, &tooBig) {
			fail(w, tooLarge())
		}
		return // otherwise the client went away while sending
	}
	req := new(engine.GenerateRequest)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields() // both ends are one binary: this is a mix-up
	if err := dec.Decode(req); err != nil {
		fail(w, &engine.RequestError{Message: "the request is not valid JSON: " + err.Error()})
		return
	}
	st := &stream{w: w, ctl: http.NewResponseController(w)}
	err = s.run(r.Context(), req, st)
	switch {
	case err == nil && !st.open:
		err = errors.New("the generator ended without an event")
		fallthrough
	case err != nil && !st.open:
		_ = st.renew()
		fail(w, err)
	case err != nil:
		// The reader may be gone; then this write fails and nobody is told.
		_ = st.write(record{Error: toWire(err)})
	default:
		_ = st.write(record{Done: true}) // flushed by the end of the handler
	}
}

// run turns a panic of the generator into an error of this one request.
func (s *Server) run(ctx context.Context, req *engine.GenerateRequest, st *stream) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log().Error("panic while generating", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.Generator.Generate(ctx, req, st.event)
}

// stream writes the records of one answer.
type stream struct {
	w       http.ResponseWriter
	ctl     *http.ResponseController
	buf     bytes.Buffer
	enc     *json.Encoder
	open    bool // the status line is out
	renewed time.Time
}

func (s *stream) event(e *engine.Event) error {
	if err := s.write(record{Event: e}); err != nil {
		return fmt.Errorf("send event: %w", err)
	}
	return s.ctl.Flush()
}

func (s *stream) write(rec record) error {
	if s.enc == nil {
		s.enc = json.NewEncoder(&s.buf)
		s.enc.SetEscapeHTML(false)
	}
	s.buf.Reset()
	if err := s.enc.Encode(rec); err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if s.buf.Len() > MaxRecord {
		return fmt.Errorf("a record has %d bytes, the limit is %d", s.buf.Len(), MaxRecord)
	}
	if !s.open {
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.open = true
	}
	if err := s.renew(); err != nil {
		return err
	}
	_, err := s.w.Write(s.buf.Bytes())
	return err
}

func (s *stream) renew() error {
	now := time.Now()
	if now.Sub(s.renewed) <= writeRenew {
		return nil
	}
	s.renewed = now
	return s.ctl.SetWriteDeadline(now.Add(writeTimeout))
}

func tooLarge() error {
	return &engine.RequestError{Message: fmt.Sprintf("the request has more than %d bytes", MaxRequest)}
}

func fail(w http.ResponseWriter, err error) {
	wire := toWire(err)
	writeJSON(w, wire.status(), record{Error: wire})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only when the client is gone
}
