package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"

	"athanor/server/api"
)

// Body is the body of a request as it comes, for operations that do not take
// JSON. It is a stream: what it reads is not kept, and its size is bounded by
// the operation's BodyLimit. It belongs to the operation's goroutine and dies
// with the request.
type Body struct {
	Type   string // media type in lower case, without parameters; "" when not given
	Length int64  // bytes as announced, -1 when not

	x      *exchange
	params map[string]string
	r      io.Reader
	left   int64 // of the limit
	limit  int64
	ended  bool
}

// PutBody registers a PUT whose function reads the body itself.
func PutBody[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req, *Body) (*Resp, error), opts ...Option) Op {
	return withRawBody(http.MethodPut, path, tag, access, fn, opts)
}

// PostBody registers a POST whose function reads the body itself.
func PostBody[Req, Resp any](path, tag string, access Access, fn func(context.Context, *Req, *Body) (*Resp, error), opts ...Option) Op {
	return withRawBody(http.MethodPost, path, tag, access, fn, opts)
}

func withRawBody[Req, Resp any](method, path, tag string, access Access, fn func(context.Context, *Req, *Body) (*Resp, error), opts []Option) Op {
	op := newOp[Req](method, path, tag, access, opts)
	if op.err == nil && op.bind.body {
		op.err = errors.New("the request type has json fields, but the body is not read as JSON")
	}
	op.Upload = true
	op.run = func(ctx context.Context, req any, _ *Events) (any, error) {
		body, _ := ctx.Value(bodyKey{}).(*Body)
		if body == nil {
			body = &Body{Length: 0, r: strings.NewReader("")}
		}
		return optional(fn(ctx, req.(*Req), body))
	}
	return op
}

type bodyKey struct{}

// newBody opens the body for an operation that reads it itself.
func (x *exchange) newBody() (*Body, error) {
	h := &x.rc.Request.Header
	if enc := string(h.ContentEncoding()); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, unsupportedMedia("content-encoding %s is not supported", quoted(enc))
	}
	b := &Body{x: x, Length: int64(h.ContentLength()), limit: x.limit(), r: strings.NewReader("")}
	if b.Length < 0 {
		b.Length = -1
	}
	if b.Length > b.limit {
		return nil, api.TooLarge(b.limit)
	}
	if ct := string(h.ContentType()); ct != "" {
		var err error
		if b.Type, b.params, err = mime.ParseMediaType(ct); err != nil && b.Type == "" {
			return nil, unsupportedMedia("content-type %s cannot be read", quoted(ct))
		}
	}
	if stream := x.rc.RequestBodyStream(); stream != nil {
		b.r = &patientReader{stream, x}
	}
	b.left = b.limit
	return b, nil
}

// Read reads the next bytes. Its errors, beside io.EOF, are *api.Error: the body
// is over the limit, or the client sent nothing for too long or went away.
func (b *Body) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if b.x != nil {
		b.x.in += int64(n)
	}
	switch {
	case b.left < 0:
		return n, api.TooLarge(b.limit)
	case err == io.EOF:
		b.ended = true
		if b.x != nil {
			b.x.bodyRead = true
		}
		return n, io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, api.New(http.StatusRequestTimeout, api.TypeInvalidRequest, "request_timeout",
			"the request body stopped coming for %s", b.x.s.limits.Read)
	case err != nil:
		return n, api.Invalid("", "the request body cannot be read: %v", err)
	}
	return n, nil
}

// Form reads a short body of names and values, application/x-www-form-urlencoded,
// of at most limit bytes.
func (b *Body) Form(limit int64) (url.Values, error) {
	data, err := b.all(limit)
	if err != nil {
		return nil, err
	}
	v, err := url.ParseQuery(string(data))
	if err != nil {
		return nil, api.Invalid("", "the request body is not a form: %v", err)
	}
	return v, nil
}

// JSON reads a short JSON object of at most limit bytes into v.
func (b *Body) JSON(limit int64, v any) error {
	data, err := b.all(limit)
	if err != nil {
		return err
	}
	return decode(data, v, false)
}

func (b *Body) all(limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(b, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = api.TooLarge(limit)
	}
	return data, err
}

// Parts reads a multipart/form-data body part by part, in the order in which
// they come. NextPart returns io.EOF only after the last part of a whole body;
// give its other errors, and those of reading a part, to PartError.
func (b *Body) Parts() (*multipart.Reader, error) {
	boundary := b.params["boundary"]
	if b.Type != "multipart/form-data" || boundary == "" || len(boundary) > 70 {
		return nil, unsupportedMedia("content-type must be multipart/form-data with a boundary")
	}
	return multipart.NewReader(&wholeParts{b: b}, boundary), nil
}

// wholeParts makes a multipart body that ends early an error everywhere; the
// reader of parts takes an end inside a part's head for the end of all.
type wholeParts struct {
	b     *Body
	bare  bool // lines end in a bare line feed
	begun bool
	added bool // the line end that may be missing after the last boundary
}

func (w *wholeParts) Read(p []byte) (int, error) {
	n, err := w.b.Read(p)
	if i := bytes.IndexByte(p[:n], '\n'); i >= 0 && !w.begun {
		w.begun, w.bare = true, i == 0 || p[i-1] != '\r'
	}
	if err != io.EOF {
		return n, err
	}
	if n > 0 {
		return n, nil
	}
	if w.added {
		return 0, io.ErrUnexpectedEOF
	}
	w.added = true
	if w.bare {
		return copy(p, "\n"), nil
	}
	return copy(p, "\r\n"), nil
}

// PartError turns an error of reading parts into what the client is told.
func PartError(err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return known
	}
	return api.Invalid("", "the multipart body is malformed or ends early: %v", err)
}

// finish reads the little that may follow the last part, so that the connection
// can be used again.
func (b *Body) finish() {
	const epilogue = 64 << 10
	if !b.ended && b.left > 0 {
		_, _ = io.Copy(io.Discard, io.LimitReader(b, epilogue))
	}
}

// limit is the bound of the operation's body in bytes.
func (x *exchange) limit() int64 {
	if x.op.BodyLimit != 0 {
		return x.op.BodyLimit
	}
	return x.s.limits.Body
}

// withUpload runs an operation that reads the body itself.
func (x *exchange) withUpload(req any) (any, error) {
	body, err := x.newBody()
	if err != nil {
		return nil, err
	}
	resp, err := x.op.run(context.WithValue(x.ctx, bodyKey{}, body), req, nil)
	if err != nil {
		return nil, err
	}
	body.finish()
	return resp, nil
}

// BaseURL is where the client reached the server, with the version it used:
// "http://host:port/v1"; empty outside a request. It is made of what the client
// itself said, so only that client may be told.
func BaseURL(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.base
	}
	return ""
}

// base finds BaseURL.
func (x *exchange) base(prefix string) string {
	scheme := "http"
	if x.rc.IsTLS() || strings.EqualFold(string(x.rc.Request.Header.Peek("X-Forwarded-Proto")), "https") {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s%s", scheme, x.rc.Host(), prefix)
}
