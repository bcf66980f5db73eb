package rest

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"athanor/server/api"
)

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
