package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"runtime/debug"
	"strconv"
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
	events   *Events // set once the response is a stream
	bodyRead bool    // to its end

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

// serve answers the request as op says.
func (x *exchange) serve(op *Op, param func(string) string) {
	x.op = op
	if op.Inference {
		x.rc.Response.Header.Set("x-ratelimit-reset", "0")
	}
	switch resp, err := x.answer(param); {
	case x.events != nil:
		x.stream()
	case err != nil:
		x.fail(err)
	default:
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
		limit := x.op.BodyLimit
		if limit == 0 {
			limit = x.s.limits.Body
		}
		err := x.withBody(limit, func(body []byte) error {
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
		return nil, x.resolve(err)
	}
	return resp, nil
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

// reply writes an ordinary response; a nil value has no body.
func (x *exchange) reply(status int, v any) {
	if v == nil {
		x.raw(http.StatusNoContent, "", nil)
		return
	}
	body, err := encode(v)
	if err != nil {
		x.fail(api.Internal(fmt.Errorf("encode the response: %w", err)))
		return
	}
	x.raw(status, "application/json", body)
}

// fail writes an error response with its headers.
func (x *exchange) fail(e *api.Error) {
	x.err = e
	h := &x.rc.Response.Header
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		wait := strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds()))))
		h.Set("retry-after", wait)
		if x.op != nil && x.op.Inference {
			h.Set("x-ratelimit-reset", wait)
		}
	case http.StatusConflict:
		h.Set("x-should-retry", "false")
	}
	body, jsonErr := encode(errorBody{e})
	if jsonErr != nil { // a message that is not UTF-8
		body, _ = encode(errorBody{api.New(e.Status, e.Type, "", "%s", strings.ToValidUTF8(e.Message, "?"))})
	}
	x.raw(e.Status, "application/json", body)
}

func (x *exchange) raw(status int, contentType string, body []byte) {
	x.status = status
	x.out = int64(len(body))
	x.rc.Response.SetStatusCode(status)
	if contentType != "" {
		x.rc.Response.Header.SetContentType(contentType)
	}
	x.rc.Response.SetBodyRaw(body)
	if err := x.conn.SetWriteDeadline(deadline(x.s.limits.Write)); err != nil {
		x.rc.SetConnectionClose()
	}
}

// stream makes the events the body of the response. From here on the exchange
// ends when the body is closed.
func (x *exchange) stream() {
	x.status, x.first = http.StatusOK, x.s.kit.Now()
	h := &x.rc.Response.Header
	h.SetContentType("text/event-stream; charset=utf-8")
	h.Set("cache-control", "no-cache")
	h.Set("x-accel-buffering", "no") // a proxy must not hold events back
	x.events.closed = func(err *api.Error) {
		x.s.shut(x.events)
		x.err = err
		x.out = x.events.out
		x.end()
	}
	x.rc.SetBodyStream(x.events, -1)
}

// end is the last thing that happens to an exchange.
func (x *exchange) end() {
	x.conn.end()
	x.cancel(nil)
	if x.err != nil && x.err.Status == statusGone {
		x.status = statusGone
	}
	sample := Sample{
		Op: x.op, Status: x.status, Duration: x.s.kit.Now().Sub(x.start),
		In: x.in, Out: x.out, Streamed: x.events != nil, Failed: x.err != nil,
	}
	if sample.Streamed {
		sample.FirstByte = x.first.Sub(x.start)
	}
	if x.s.observe != nil {
		x.s.observe(sample)
	}
	x.log(sample)
}

// log writes the access line. It never has a body, a key or a query.
func (x *exchange) log(sample Sample) {
	level, key := slog.LevelInfo, ""
	if x.call.caller != nil {
		key = x.call.caller.KeyID
	}
	attrs := []slog.Attr{
		slog.String("op", x.name()), slog.Int("status", x.status),
		slog.Float64("ms", float64(sample.Duration.Microseconds())/1000),
		slog.String("req", x.call.id), slog.String("key", key), slog.Bool("stream", sample.Streamed),
	}
	if x.err != nil && x.err.Status >= http.StatusInternalServerError {
		level = slog.LevelError
		if x.err.Status == http.StatusServiceUnavailable {
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.String("err", x.err.Error()))
	}
	x.s.log.LogAttrs(context.Background(), level, "request", attrs...)
}

// unescape reads a path parameter as it came, with percent signs.
func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}
