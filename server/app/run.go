package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"athanor/server/rest"
)

// Run listens and serves the API and the admin socket until ctx ends; then it
// drains: new requests are refused, running ones get their time.
func (a *App) Run(ctx context.Context) error {
	ln, err := a.listen()
	if err != nil {
		return err
	}
	stopAdmin, err := a.ServeAdmin()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer stopAdmin()
	a.kit.Log.Info("serving", "address", ln.Addr().String(), "tls", a.cfg.TLSCert != "")
	return a.Serve(ctx, ln)
}

// Serve serves the API on ln until ctx ends, and drains: jobs are put back while
// requests come to their end. It closes ln.
func (a *App) Serve(ctx context.Context, ln net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- a.server.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	a.kit.Log.Info("shutting down")
	drain := a.drain()
	var putBack sync.WaitGroup
	putBack.Go(a.jobs.Stop)
	defer putBack.Wait()
	if err := a.server.Shutdown(drain); errors.Is(err, context.DeadlineExceeded) {
		a.kit.Log.Warn("the time to drain is over: requests were cut off")
	} else if err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	if err := <-failed; err != nil && !errors.Is(err, rest.ErrClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (a *App) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a.cfg.Listen, err)
	}
	if a.cfg.TLSCert == "" {
		return ln, nil
	}
	pair := &certificate{cert: a.cfg.TLSCert, key: a.cfg.TLSKey}
	if _, err := pair.get(nil); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}), nil
}

// certificate is a key pair on disk, read again when the file changes.
type certificate struct {
	cert, key string

	mu     sync.Mutex // protects fields below
	loaded *tls.Certificate
	stamp  time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.cert)
	if err == nil && c.loaded != nil && info.ModTime().Equal(c.stamp) {
		return c.loaded, nil
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.loaded, c.stamp = &pair, info.ModTime()
		}
	}
	if err != nil && c.loaded == nil {
		return nil, fmt.Errorf("TLS certificate: %w", err)
	}
	return c.loaded, nil // a half-written renewal must not end the service
}
