package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"

	"athanor/server/api"
)

// prefetched is how much of a body with a length fasthttp has read before the
// handler runs.
const prefetched = 8 << 10

// bodies holds buffers for reading bodies; larger ones are not kept.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const keptBody = 1 << 20

// withBody reads the whole body, at most limit bytes, and hands it to use,
// which must not keep it.
func (x *exchange) withBody(limit int64, use func([]byte) error) error {
	if err := x.jsonBody(); err != nil {
		return err
	}
	if int64(x.rc.Request.Header.ContentLength()) > limit {
		return api.TooLarge(limit)
	}
	buf := bodies.Get().(*bytes.Buffer)
	buf.Reset()
	defer func() {
		if buf.Cap() <= keptBody {
			bodies.Put(buf)
		}
	}()
	if stream := x.rc.RequestBodyStream(); stream != nil {
		n, err := buf.ReadFrom(&patientReader{io.LimitReader(stream, limit+1), x})
		x.in = n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return api.New(http.StatusRequestTimeout, api.TypeInvalidRequest, "request_timeout",
				"the request body stopped coming for %s", x.s.limits.Read)
		case err != nil:
			return api.Invalid("", "the request body cannot be read: %v", err)
		case n > limit:
			return api.TooLarge(limit)
		}
		x.bodyRead = true
	}
	return use(buf.Bytes())
}

// patientReader gives the client a new deadline for each piece of the body.
type patientReader struct {
	r io.Reader
	x *exchange
}

func (p *patientReader) Read(b []byte) (int, error) {
	if err := p.x.conn.SetReadDeadline(deadline(p.x.s.limits.Read)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	return p.r.Read(b)
}

// jsonBody refuses a body that says it is something else than JSON.
func (x *exchange) jsonBody() error {
	h := &x.rc.Request.Header
	if enc := string(h.ContentEncoding()); enc != "" && !strings.EqualFold(enc, "identity") {
		return unsupportedMedia("content-encoding %s is not supported", quoted(enc))
	}
	ct := string(h.ContentType())
	if ct == "" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(ct)
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return unsupportedMedia("content-type must be application/json, got %s", quoted(ct))
	}
	return nil
}

func unsupportedMedia(format string, args ...any) error {
	return api.New(http.StatusUnsupportedMediaType, api.TypeInvalidRequest, "unsupported_media_type", format, args...)
}

// guard makes sure that what is left of a body is never read as the next
// request: a short rest is in memory already and thrown away, otherwise the
// connection is closed after the response.
func (x *exchange) guard() {
	if x.bodyRead || !x.rc.Request.IsBodyStream() {
		return
	}
	if n := x.rc.Request.Header.ContentLength(); n >= 0 && n <= prefetched {
		if _, err := io.Copy(io.Discard, x.rc.RequestBodyStream()); err == nil {
			return
		}
	}
	x.rc.SetConnectionClose()
	x.conn.linger.Store(true)
}
