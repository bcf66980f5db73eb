package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	maxRedirects  = 10
	maxHeader     = 1 << 20 // bytes of a response's header
	defaultIdle   = 60 * time.Second
	defaultAnswer = 64 << 20 // bytes of a response's body
)

// ErrTooLarge is returned while reading a response body that is longer than allowed.
var ErrTooLarge = errors.New("the answer is longer than allowed")

// Options bound the requests of a client. A zero field takes its default.
type Options struct {
	// Purpose says for the log what the requests are for, like "job ft-1".
	Purpose string
	// MaxBody is the most bytes of a response's body, default 64 MiB.
	MaxBody int64
	// Idle is how long a connection may stand still: the whole answer may take
	// longer, each piece of it may not. Default 60 s.
	Idle time.Duration
}

// Client is an HTTP client whose every connection passes the gate. Its redirects
// never go from https to http. Call CloseIdleConnections when it is done.
func (g *Gate) Client(opt Options) *http.Client {
	if opt.MaxBody == 0 {
		opt.MaxBody = defaultAnswer
	}
	if opt.Idle == 0 {
		opt.Idle = defaultIdle
	}
	inner := &http.Transport{
		Proxy: nil, // the environment does not decide where data goes
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := g.Dial(ctx, opt.Purpose, address)
			if err != nil {
				return nil, err
			}
			return &idleConn{conn, opt.Idle}, nil
		},
		TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: opt.Idle, ExpectContinueTimeout: time.Second,
		MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: 2, IdleConnTimeout: opt.Idle,
		ForceAttemptHTTP2: true,
	}
	return &http.Client{Transport: &transport{gate: g, opt: opt, inner: inner}, CheckRedirect: checkRedirect}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("a redirect from https to %s is not followed", req.URL.Scheme)
	}
	return nil
}

// transport checks each request, also those that find an open connection, and
// bounds the answer.
type transport struct {
	gate  *Gate
	opt   Options
	inner *http.Transport
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	address, err := addressOf(req.URL)
	if err == nil {
		_, err = t.gate.match(address)
	}
	if err != nil {
		t.gate.log.Warn("connection out refused", "host", req.URL.Host, "for", t.opt.Purpose, "allowed", false, "reason", err)
		if req.Body != nil {
			_ = req.Body.Close() // as http.RoundTripper asks for; nothing was read
		}
		return nil, err
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &boundedBody{resp.Body, t.opt.MaxBody}
	return resp, nil
}

// CloseIdleConnections is what http.Client calls by the same name.
func (t *transport) CloseIdleConnections() { t.inner.CloseIdleConnections() }

// boundedBody ends with ErrTooLarge when more than left bytes come.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n + int(b.left), ErrTooLarge
	}
	return n, err
}

// idleConn gives each piece its own deadline, so that a peer that stands still
// does not hold the caller for ever.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c *idleConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *idleConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
