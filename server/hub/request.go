package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"athanor/server/egress"
)

const (
	maxAnswer = 64 << 20 // bytes of JSON
	maxReason = 300      // bytes of a hub's words in an error
)

// statusError is an answer that is not a success.
type statusError struct {
	status int
	reason string        // of the hub, without anything secret
	after  time.Duration // Retry-After, 0 = not given
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the hub answered %d %s", e.status, http.StatusText(e.status))
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

// Unwrap makes the sentinels of this package of a status.
func (e *statusError) Unwrap() error {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrAuth
	case http.StatusNotFound:
		return ErrNotFound
	}
	return nil
}

// temporary reports whether the same request may succeed later.
func (e *statusError) temporary() bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout || e.status >= 500
}

// permanent marks an error that another try does not help.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// retry calls try until it succeeds, fails for good, or has failed too often in a
// row without progress, which try reports.
func (c *Client) retry(ctx context.Context, try func() (progress bool, err error)) error {
	for failures := 1; ; failures++ {
		progress, err := try()
		if err == nil {
			return nil
		}
		if progress {
			failures = 1
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p, found := errors.AsType[permanent](err); found {
			return p.error
		}
		wait := min(c.limits.Wait, time.Second<<min(failures-1, 20))
		if s, found := errors.AsType[*statusError](err); found {
			if !s.temporary() {
				return err
			}
			wait = min(c.limits.Wait, max(wait, s.after))
		}
		if failures >= c.limits.Tries {
			return fmt.Errorf("after %d tries: %w", failures, err)
		}
		if err := c.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// request is one exchange with the hub.
type request struct {
	method, url string
	token       string // goes into Authorization; only for URLs of the hub
	header      map[string]string
	body        func() (io.ReadCloser, error) // opened for each try; nil for none
	size        int64                         // of the body
}

// do sends a request once. A response that is not a success becomes a *statusError;
// the body of another one is the caller's to close.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	var body io.ReadCloser
	if r.body != nil {
		var err error
		if body, err = r.body(); err != nil {
			return nil, permanent{err}
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, body)
	if err != nil {
		return nil, permanent{fmt.Errorf("a URL of the hub is wrong: %w", withoutURL(err))}
	}
	if r.body != nil {
		req.ContentLength, req.GetBody = r.size, r.body
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	req.Header.Set("User-Agent", "athanor")
	req.Header.Set("Accept-Encoding", "identity") // sizes and digests are of the plain bytes
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := c.http.Do(req)
	if _, denied := errors.AsType[*egress.Denied](err); denied {
		return nil, permanent{withoutURL(err)}
	}
	if err != nil {
		return nil, fmt.Errorf("speak to the hub: %w", withoutURL(err))
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, failure(resp, r.token)
}

// withoutURL takes the URL out of an error of net/http: links to storage are signed.
func withoutURL(err error) error {
	if u, found := errors.AsType[*url.Error](err); found {
		return u.Err
	}
	return err
}

// failure reads what the hub says about a failed request.
func failure(resp *http.Response, token string) *statusError {
	e := &statusError{status: resp.StatusCode, reason: resp.Header.Get("X-Error-Message")}
	if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil {
		e.after = time.Duration(n) * time.Second
	}
	var body struct{ Error, Message string }
	if data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil && e.reason == "" && json.Unmarshal(data, &body) == nil {
		e.reason = body.Error + body.Message // one of them
	}
	e.reason = clean(e.reason, token)
	return e
}

// clean makes a hub's words fit for an error: without the token, and short.
func clean(words, token string) string {
	if token != "" {
		words = strings.ReplaceAll(words, token, "...")
	}
	return strings.ToValidUTF8(words[:min(len(words), maxReason)], "")
}

// call sends in as JSON, unless it is nil, and decodes the answer into out, unless
// that is nil. It tries again when that may help.
func (c *Client) call(ctx context.Context, method, url, token string, in, out any) error {
	r := request{method: method, url: url, token: token}
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		r.payload("application/json", data)
	}
	return c.answer(ctx, r, out)
}

// payload makes bytes the body of the request.
func (r *request) payload(contentType string, data []byte) {
	r.body = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	r.size = int64(len(data))
	if r.header == nil {
		r.header = map[string]string{}
	}
	r.header["Content-Type"] = contentType
}

// answer sends a request until it is answered and decodes the answer into out.
func (c *Client) answer(ctx context.Context, r request, out any) error {
	return c.retry(ctx, func() (bool, error) {
		resp, err := c.do(ctx, r)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if out == nil {
			return false, nil
		}
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil {
			return false, fmt.Errorf("read the hub's answer: %w", withoutURL(err))
		}
		if len(data) > maxAnswer {
			return false, permanent{fmt.Errorf("the hub's answer has more than %d bytes", maxAnswer)}
		}
		if err := json.Unmarshal(data, out); err != nil {
			return false, permanent{fmt.Errorf("the hub's answer cannot be understood: %w", err)}
		}
		return false, nil
	})
}
