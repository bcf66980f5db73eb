package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/api"
	"athanor/server/app"
	"athanor/server/config"
)

// client speaks to a server over its admin socket, without a key.
type client struct {
	http  *http.Client
	close func() error
	every time.Duration // between questions about a job, 0 = a second
	alone bool          // there is no server: jobs run only as long as this command
}

// connect finds the running server of the data directory, or opens the data
// directory in this process.
func connect(cmd *cobra.Command, c config.Config) (*client, error) {
	if conn, err := app.DialAdmin(cmd.Context(), c); err == nil {
		conn.Close()
		return newClient(c, func() error { return nil }), nil
	}
	quiet := c
	if quiet.LogLevel == config.Default().LogLevel {
		quiet.LogLevel = "warn" // the command's own output is what counts
	}
	a, err := app.Open(cmd.Context(), c, app.Options{Log: newLogger(quiet, cmd.ErrOrStderr())})
	if err != nil {
		return nil, err
	}
	stop, err := a.ServeAdmin()
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if key := a.FirstKey(); key != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "This is the admin key of the new appliance. It is shown once:\n%s\n", key)
	}
	cl := newClient(c, func() error { stop(); return a.Close() })
	cl.alone = true
	return cl, nil
}

func newClient(c config.Config, closer func() error) *client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return app.DialAdmin(ctx, c) }
	return &client{http: &http.Client{Transport: &http.Transport{DialContext: dial}}, close: closer}
}

// call sends in as JSON, unless it is nil, and decodes the answer into out.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	return nil
}

// stream sends in and hands the data of each server-sent event to event.
func (c *client) stream(ctx context.Context, path string, in any, event func(data []byte) error) error {
	resp, err := c.send(ctx, http.MethodPost, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		if data == "[DONE]" {
			return nil
		}
		if err := serverError([]byte(data)); err != nil {
			return err
		}
		if err := event([]byte(data)); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the server's stream: %w", err)
	}
	return errors.New("the server ended the stream early")
}

func (c *client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	return c.do(ctx, method, path, "application/json", body)
}

// do sends a body and returns a successful response, whose body is to be closed.
func (c *client) do(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://athanor/v1"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer local")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("speak to the server: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	if err := serverError(data); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the server answered %s", resp.Status)
}

// serverError is the error of an API body, nil when the body holds none.
func serverError(data []byte) error {
	var body struct {
		Error *api.Error `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil || body.Error == nil {
		return nil
	}
	return errors.New(body.Error.Message)
}

// withClient runs fn with a connected client and closes it.
func withClient(f *flags, cmd *cobra.Command, fn func(*client) error) error {
	c, err := f.config(cmd)
	if err != nil {
		return err
	}
	cl, err := connect(cmd, c)
	if err != nil {
		return err
	}
	return errors.Join(fn(cl), cl.close())
}
