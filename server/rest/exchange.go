package rest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"athanor/server/api"
)

// exchange is one request and its response. It belongs to the goroutine of
// the connection; what the operation sees is ctx.
type exchange struct {
	s        *Server
	rc       *fasthttp.RequestCtx
	conn     *conn
	op       *Op // nil for what is not in the table
	call     *call
	ctx      context.Context
	cancel   context.CancelCauseFunc
	events   *Events   // set once the response is a stream
	body     *download // set once the response is a Content
	bodyRead bool      // to its end
	path     string    // without the prefix

	start, first time.Time
	in, out      int64
	status       int // 0 until there is a response
	err          *api.Error
}

// Sample is what one request was like, for the metrics.
type Sample struct {
	Op        *Op // nil for what is not in the table
	Status    int // 499 when the client left before the response
	Duration  time.Duration
	FirstByte time.Duration // of a stream: until its first event
	In, Out   int64         // bytes of the bodies
	Streamed  bool
	Failed    bool // an error response, or a stream that ended with an error event
}

// statusGone is what the log says when the client left first.
const statusGone = 499

type errorBody struct {
	Error *api.Error `json:"error"`
}

func (s *Server) begin(rc *fasthttp.RequestCtx) *exchange {
	x := &exchange{s: s, rc: rc, start: s.kit.Now()}
	x.call = &call{id: s.kit.NewID("req"), agent: string(rc.UserAgent())}
	ctx, cancel := context.WithCancelCause(s.base)
	x.ctx, x.cancel = context.WithValue(ctx, callKey{}, x.call), cancel
	x.conn, _ = rc.Conn().(*conn)
	x.conn.begin(cancel)
	rc.Response.Header.Set("x-request-id", x.call.id)
	return x
}

// serve answers the request as op says; prefix is the base it came under.
func (x *exchange) serve(op *Op, prefix string, param func(string) string) {
	x.op = op
	x.path = strings.TrimPrefix(string(x.rc.Path()), prefix)
	x.call.base = x.base(prefix)
	if op.Inference {
		x.rc.Response.Header.Set("x-ratelimit-reset", "0")
	}
	switch resp, err := x.answer(param); {
	case x.events != nil:
		x.stream()
	case err != nil:
		x.fail(err)
	default:
		if shaped, ok := resp.(*Reply); ok {
			x.shaped(shaped)
			return
		}
		x.reply(op.Status, resp)
	}
}

// answer goes from the key to the operation's result. Nothing in it may take
// the process down.
func (x *exchange) answer(param func(string) string) (any, *api.Error) {
	req := reflect.New(x.op.request)
	resp, err := x.protect(func() (any, error) {
		if x.s.isDraining() {
			return nil, errDraining
		}
		if err := x.authorise(); err != nil {
			return nil, err
		}
		if err := x.fill(req, param); err != nil || x.op.Stream {
			return nil, err
		}
		if x.op.Upload {
			return x.withUpload(req.Interface())
		}
		return x.op.run(x.ctx, req.Interface(), nil)
	})
	if err != nil || !x.op.Stream {
		return resp, err
	}
	return x.answerStream(req.Interface())
}

// answerStream runs the operation beside the connection's goroutine and waits
// until it is known whether the response is a stream.
func (x *exchange) answerStream(req any) (any, *api.Error) {
	ev := newEvents(x.ctx, x.cancel)
	ev.conn, ev.write = x.conn, x.s.limits.Write
	if !x.s.open(ev) {
		return nil, errDraining
	}
	go ev.run(func() (any, *api.Error) {
		return x.protect(func() (any, error) { return x.op.run(x.ctx, req, ev) })
	})
	<-ev.opened
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.sent {
		x.events = ev
		return nil, nil
	}
	x.s.shut(ev)
	return ev.resp, ev.err
}

// authorise finds the caller and checks what the operation asks of it.
func (x *exchange) authorise() error {
	if x.op.Access.ByLink() {
		return x.verify()
	}
	key, err := bearer(string(x.rc.Request.Header.Peek("Authorization")))
	if err != nil {
		return err
	}
	p, err := x.s.auth.Authenticate(x.ctx, key)
	if err != nil {
		return err
	}
	x.call.caller = p
	if !x.op.Access.Allows(p) {
		return api.Forbidden("this key may not do that: the role of %s is needed", x.op.Access)
	}
	return nil
}

// bearer takes the key out of an Authorization header.
func bearer(header string) (string, error) {
	scheme, key, _ := strings.Cut(strings.TrimSpace(header), " ")
	key = strings.TrimSpace(key)
	switch {
	case scheme == "" || key == "" && strings.EqualFold(scheme, "bearer"):
		return "", api.Unauthorized("missing_api_key", "no API key: send the header Authorization: Bearer <key>")
	case !strings.EqualFold(scheme, "bearer") || strings.ContainsAny(key, " \t,"):
		return "", api.Unauthorized("invalid_api_key", "the Authorization header must be: Bearer <key>")
	}
	return key, nil
}

// fill reads path, query and body into the request struct and validates it.
// The path comes last, so that nothing else can set what it names.
func (x *exchange) fill(req reflect.Value, param func(string) string) error {
	var query []pair
	for k, v := range x.rc.QueryArgs().All() {
		query = append(query, pair{string(k), string(v)})
	}
	if x.op.bind.body {
		err := x.withBody(x.limit(), func(body []byte) error {
			if len(body) == 0 && x.op.optionalBody {
				return nil
			}
			return decode(body, req.Interface(), x.op.Strict)
		})
		if err != nil {
			return err
		}
	}
	if err := x.op.bind.setQuery(req.Elem(), query, x.op.Strict); err != nil {
		return err
	}
	if err := x.op.bind.setPath(req.Elem(), param); err != nil {
		return err
	}
	if v, ok := req.Interface().(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// protect calls fn, turns a panic into an error, and errors into what the
// client is told.
func (x *exchange) protect(fn func() (any, error)) (resp any, failure *api.Error) {
	defer func() {
		if p := recover(); p != nil {
			resp, failure = nil, x.panicked(p)
		}
	}()
	resp, err := fn()
	if err != nil {
		return nil, readable(x.resolve(err))
	}
	return resp, nil
}

// readable cuts a message that repeats a client's own text at great length.
func readable(e *api.Error) *api.Error {
	const most = 2000
	if len(e.Message) <= most {
		return e
	}
	short := *e
	short.Message = strings.ToValidUTF8(e.Message[:most], "") + "..."
	return &short
}

// panicked logs a panic with its stack; it is called by the deferred function
// that recovered it.
func (x *exchange) panicked(p any) *api.Error {
	x.s.log.Error("panic", "op", x.name(), "req", x.call.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return api.Internal(fmt.Errorf("panic: %v", p))
}

// name labels the exchange in the log.
func (x *exchange) name() string {
	if x.op == nil {
		return "unmatched"
	}
	return x.op.Name()
}

// resolve finds what the client is told about err.
func (x *exchange) resolve(err error) *api.Error {
	var known *api.Error
	if errors.As(err, &known) {
		return known
	}
	if cause := context.Cause(x.ctx); cause != nil && errors.Is(err, context.Canceled) {
		if errors.As(cause, &known) {
			return known
		}
		err = cause
	}
	if errors.Is(err, errGone) {
		return api.New(statusGone, api.TypeInvalidRequest, "client_closed_request", "%v", errGone)
	}
	if x.s.mapError != nil {
		if known = x.s.mapError(err); known != nil {
			return known
		}
	}
	return api.Internal(err)
}
