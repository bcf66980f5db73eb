package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"athanor/server/api"
)

// Reply is a response that an operation shapes itself: another status, headers
// of its own, or bytes instead of JSON. An operation whose response type is
// Reply returns one; nil is 204 as always.
type Reply struct {
	Status  int               // 0 means the operation's
	Header  map[string]string // beside the usual ones
	Value   any               // rendered as JSON; nil with a nil Content means an empty body
	Content *Content          // bytes, which may be asked for in part
}

// Redirect answers 302 to a location, with an empty body.
func Redirect(location string, header map[string]string) *Reply {
	h := map[string]string{"location": location}
	for k, v := range header {
		h[k] = v
	}
	return &Reply{Status: http.StatusFound, Header: h}
}

// Content is a body of bytes with a known size. A request with one range in
// bytes gets that part of it (RFC 9110, section 14).
type Content struct {
	Type string // content-type; application/octet-stream when empty
	Size int64  // bytes
	ETag string // without quotes; empty for none
	// Open gives length bytes from offset on. ctx ends with the response.
	Open func(ctx context.Context, offset, length int64) (io.ReadCloser, error)
}

// shaped writes a Reply.
func (x *exchange) shaped(r *Reply) {
	status := r.Status
	if status == 0 {
		status = x.op.Status
	}
	for k, v := range r.Header {
		x.rc.Response.Header.Set(k, v)
	}
	switch {
	case r.Content != nil:
		x.content(r.Content)
	case r.Value != nil:
		x.reply(status, r.Value)
	default:
		x.raw(status, "", nil)
	}
}

// content answers with the range that was asked for, or with everything.
func (x *exchange) content(c *Content) {
	h := &x.rc.Response.Header
	h.Set("accept-ranges", "bytes")
	if c.ETag != "" {
		h.Set("etag", strconv.Quote(c.ETag))
	}
	asked := string(x.rc.Request.Header.Peek("Range"))
	if cond := string(x.rc.Request.Header.Peek("If-Range")); cond != "" && cond != strconv.Quote(c.ETag) {
		asked = ""
	}
	offset, length, part, err := byteRange(asked, c.Size)
	if err != nil {
		h.Set("content-range", fmt.Sprintf("bytes */%d", c.Size))
		x.fail(err)
		return
	}
	status := http.StatusOK
	if part {
		status = http.StatusPartialContent
		h.Set("content-range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, c.Size))
	}
	kind := c.Type
	if kind == "" {
		kind = "application/octet-stream"
	}
	if length == 0 {
		x.raw(status, kind, nil)
		return
	}
	body, openErr := c.Open(x.ctx, offset, length)
	if openErr != nil {
		h.Del("content-range")
		h.Del("etag")
		x.fail(readable(x.resolve(openErr)))
		return
	}
	x.status, x.first = status, x.s.kit.Now()
	x.rc.Response.SetStatusCode(status)
	h.SetContentType(kind)
	x.body = &download{x: x, body: body, left: length}
	x.rc.SetBodyStream(x.body, int(length))
}

// byteRange reads a Range header for a body of size bytes. A header that is
// absent, in another unit or with several ranges asks for everything.
func byteRange(header string, size int64) (offset, length int64, part bool, _ *api.Error) {
	spec, found := strings.CutPrefix(header, "bytes=")
	if !found || strings.Contains(spec, ",") {
		return 0, size, false, nil
	}
	from, to, found := strings.Cut(strings.TrimSpace(spec), "-")
	first, err1 := parseOffset(from)
	last, err2 := parseOffset(to)
	if !found || err1 != nil || err2 != nil || first < 0 && last < 0 || first >= 0 && last >= 0 && last < first {
		return 0, size, false, nil // not a range: ignored, as the standard asks
	}
	if first < 0 { // the last bytes
		first, last = max(0, size-last), size-1
	}
	if last < 0 || last >= size {
		last = size - 1
	}
	if first > last {
		return 0, 0, false, api.New(http.StatusRequestedRangeNotSatisfiable, api.TypeInvalidRequest, "range_not_satisfiable",
			"the range %s lies outside the %d bytes", quoted(header), size)
	}
	return first, last - first + 1, true, nil
}

// parseOffset reads a number of a range, -1 for an absent one.
func parseOffset(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}

// download is the body of a Content on its way out. Its reads belong to the
// goroutine of the connection, where a panic would end the process.
type download struct {
	x    *exchange
	body io.ReadCloser
	left int64
	err  *api.Error
	done bool
}

// Read gives the client a new deadline for each piece.
func (d *download) Read(p []byte) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			d.err = d.x.panicked(r)
			n, err = 0, d.err
		}
	}()
	if d.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > d.left {
		p = p[:d.left]
	}
	if err := d.x.conn.SetWriteDeadline(deadline(d.x.s.limits.Write)); err != nil {
		return 0, err
	}
	n, err = d.body.Read(p)
	d.left -= int64(n)
	d.x.out += int64(n)
	switch {
	case d.left == 0:
		return n, nil
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the content ends %d bytes early", d.left)
		fallthrough
	case err != nil:
		d.err = d.x.resolve(err)
	}
	return n, err
}

// Close is called when the last byte is written or could not be.
func (d *download) Close() error {
	if d.done {
		return nil
	}
	d.done = true
	err := d.body.Close()
	if d.left > 0 && d.err == nil {
		d.err = d.x.resolve(errGone)
	}
	d.x.err = d.err
	d.x.end()
	return err
}
