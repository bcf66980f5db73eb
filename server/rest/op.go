package rest

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sort"
	"strings"
)

// Op is one operation. Make it with Get, Post, Patch, Put, Delete, PostStream,
// PostBody or PutBody; the exported fields are for reading.
type Op struct {
	Method    string
	Path      string // "/models/:id"; a last segment "*id" takes the rest of the path, slashes included
	Tag       string // the area it belongs to, for menus and metrics
	Access    Access
	Inference bool  // x-ratelimit-reset goes on every response
	Stream    bool  // the function may answer with server-sent events
	Upload    bool  // the function reads the body itself; see Body
	Strict    bool  // unknown body fields and query parameters are refused
	BodyLimit int64 // bytes; 0 means the server's limit
	Status    int   // of a response with a body

	optionalBody bool
	request      reflect.Type
	bind         *binder
	err          error // why it cannot be served, reported by New
	run          func(ctx context.Context, req any, ev *Events) (any, error)
}

// Name is the operation as logs and metrics label it: "GET /models/:id".
func (o Op) Name() string { return o.Method + " " + o.Path }

// Params are the names of the path's parameters, in order.
func (o Op) Params() []string {
	var names []string
	for s := range strings.SplitSeq(o.Path, "/") {
		if isParam(s) {
			names = append(names, s[1:])
		}
	}
	return names
}

// Option sets something about an Op.
type Option func(*Op)

// Inference marks an operation that runs a model.
func Inference() Option { return func(o *Op) { o.Inference = true } }

// Strict makes the operation refuse unknown body fields, at any depth, and
// unknown query parameters.
func Strict() Option { return func(o *Op) { o.Strict = true } }

// BodyLimit replaces the server's limit on the request body.
func BodyLimit(bytes int64) Option { return func(o *Op) { o.BodyLimit = bytes } }

// Created makes 201 the status of success.
func Created() Option { return func(o *Op) { o.Status = http.StatusCreated } }

// OptionalBody lets the body be absent, which then counts as {}.
func OptionalBody() Option { return func(o *Op) { o.optionalBody = true } }

// None is the request type of an operation that takes no parameter and the
// response type of one that answers 204 without a body.
type None struct{}

// Get registers a GET. As for the other methods: fn runs on many goroutines;
// its context ends when the client goes away; the Req and Resp types follow
// the rules of binding (see bind.go); a nil response without an error is 204.
func Get[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req) (*Resp, error), opts ...Option) Op {
	return plain(http.MethodGet, path, tag, access, fn, opts)
}

// Post registers a POST.
func Post[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req) (*Resp, error), opts ...Option) Op {
	return plain(http.MethodPost, path, tag, access, fn, opts)
}

// Patch registers a PATCH.
func Patch[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req) (*Resp, error), opts ...Option) Op {
	return plain(http.MethodPatch, path, tag, access, fn, opts)
}

// Put registers a PUT.
func Put[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req) (*Resp, error), opts ...Option) Op {
	return plain(http.MethodPut, path, tag, access, fn, opts)
}

// Delete registers a DELETE.
func Delete[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req) (*Resp, error), opts ...Option) Op {
	return plain(http.MethodDelete, path, tag, access, fn, opts)
}

// PostStream registers a POST whose function may send events. It returns
// (resp, nil) without having sent any for an ordinary JSON answer, and
// (nil, nil) after its events, which ends the stream with "data: [DONE]".
// An error before the first event is an ordinary error response, one after it
// is the last event. A response returned after events is sent as one more.
func PostStream[Req, Resp any](path, tag string, access Access, fn func(ctx context.Context, req *Req, events *Events) (*Resp, error), opts ...Option) Op {
	op := newOp[Req](http.MethodPost, path, tag, access, opts)
	op.Stream = true
	op.run = func(ctx context.Context, req any, ev *Events) (any, error) {
		return optional(fn(ctx, req.(*Req), ev))
	}
	return op
}

func plain[Req, Resp any](method, path, tag string, access Access, fn func(context.Context, *Req) (*Resp, error), opts []Option) Op {
	op := newOp[Req](method, path, tag, access, opts)
	op.run = func(ctx context.Context, req any, _ *Events) (any, error) {
		return optional(fn(ctx, req.(*Req)))
	}
	return op
}

// optional turns a nil pointer into a nil interface.
func optional[T any](v *T, err error) (any, error) {
	if v == nil || err != nil {
		return nil, err
	}
	return v, nil
}

func newOp[Req any](method, path, tag string, access Access, opts []Option) Op {
	op := Op{Method: method, Path: path, Tag: tag, Access: access, Status: http.StatusOK}
	for _, opt := range opts {
		opt(&op)
	}
	op.request = reflect.TypeFor[Req]()
	op.bind, op.err = newBinder(op.request, op.Params())
	return op
}

// table checks the operations and puts them in the order of matching: a
// literal segment before a parameter, a parameter before the rest of a path.
func table(ops []Op) ([]Op, error) {
	sorted := make([]Op, len(ops))
	copy(sorted, ops)
	sort.SliceStable(sorted, func(i, j int) bool { return shape(sorted[i].Path) < shape(sorted[j].Path) })
	seen := map[string]string{}
	for _, op := range sorted {
		switch key := op.Method + " " + shape(op.Path); {
		case op.err != nil:
			return nil, fmt.Errorf("operation %s: %w", op.Name(), op.err)
		case op.run == nil:
			return nil, fmt.Errorf("operation %s has no function", op.Name())
		case op.Access.name == "":
			return nil, fmt.Errorf("operation %s does not say what access it needs", op.Name())
		case op.Tag == "":
			return nil, fmt.Errorf("operation %s has no tag", op.Name())
		case !strings.HasPrefix(op.Path, "/"):
			return nil, fmt.Errorf("operation %s: the path must start with a slash", op.Name())
		case strings.Contains(strings.TrimSuffix(op.Path, lastSegment(op.Path)), "*"):
			return nil, fmt.Errorf("operation %s: only the last segment can take the rest of the path", op.Name())
		case seen[key] != "":
			return nil, fmt.Errorf("operations %s and %s match the same requests", op.Name(), seen[key])
		default:
			seen[key] = op.Name()
		}
	}
	return sorted, nil
}

// shape is a path with its parameters' names left out, so that two paths of
// the same shape match the same requests. The marks sort after every literal.
func shape(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		switch {
		case strings.HasPrefix(s, ":"):
			segments[i] = "\x7e\x7e"
		case strings.HasPrefix(s, "*"):
			segments[i] = "\x7f"
		}
	}
	return strings.Join(segments, "/")
}

// pattern is the path in fiber's notation.
func pattern(path string) string {
	if last := lastSegment(path); strings.HasPrefix(last, "*") {
		return strings.TrimSuffix(path, last) + "+"
	}
	return path
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func isParam(segment string) bool {
	return strings.HasPrefix(segment, ":") || strings.HasPrefix(segment, "*")
}
