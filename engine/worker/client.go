package worker

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
	"sync"

	"athanor/engine"
)

// Client is the control plane's side of the protocol: the engine.Generator of
// a worker behind a socket. Its methods are safe for concurrent use.
type Client struct {
	transport *http.Transport
	model     engine.ModelInfo
}

var _ engine.Generator = (*Client)(nil)

// idleConns is how many connections are kept between requests; a burst of
// more streams opens connections of its own.
const idleConns = 256

// Dial asks the worker at socket what it serves and returns a client of it. The
// caller closes the client.
func Dial(ctx context.Context, socket string) (*Client, error) {
	c := newClient(socket, engine.ModelInfo{})
	if err := c.get(ctx, "/info", &c.model); err != nil {
		c.Close()
		return nil, fmt.Errorf("dial worker: %w", err)
	}
	return c, nil
}

func newClient(socket string, model engine.ModelInfo) *Client {
	return &Client{
		model: model,
		transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return DialSocket(ctx, socket)
			},
			DisableCompression:  true,
			MaxIdleConns:        idleConns,
			MaxIdleConnsPerHost: idleConns,
			WriteBufferSize:     16 << 10,
			ReadBufferSize:      16 << 10,
		},
	}
}

// Model is what the worker said it serves.
func (c *Client) Model() engine.ModelInfo { return c.model }

// Health asks whether the worker answers.
func (c *Client) Health(ctx context.Context) error {
	var answer struct{ Status string }
	return c.get(ctx, "/health", &answer)
}

// Close releases idle connections. Requests in flight run on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Generate implements engine.Generator. A worker that dies in mid-answer, or
// cannot be reached, gives an error that wraps engine.ErrUnavailable; a failure
// inside the worker gives *RemoteError.
func (c *Client) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	if len(body) > MaxRequest {
		return tooLarge()
	}
	// The end of this context closes the connection, and that frees the slot.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.do(ctx, http.MethodPost, "/generate", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(ctx, resp)
	}
	return read(ctx, resp.Body, emit)
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(ctx, resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxControl)).Decode(into); err != nil {
		return lost(ctx, fmt.Errorf("read answer to %s: %w", path, err))
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://worker"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, lost(ctx, err)
	}
	return resp, nil
}

// read hands out the records of an answer. The record that ends it is followed
// to the end of the body, which gives the connection back for the next request.
func read(ctx context.Context, body io.Reader, emit func(*engine.Event) error) error {
	in := readers.Get().(*bufio.Reader)
	in.Reset(body)
	defer func() { in.Reset(nil); readers.Put(in) }()
	for {
		line, err := readLine(in, MaxRecord)
		if err != nil {
			return lost(ctx, fmt.Errorf("the answer ended in the middle: %w", err))
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return &RemoteError{Message: "bad record: " + err.Error()}
		}
		switch {
		case rec.Event != nil:
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := emit(rec.Event); err != nil {
				return err
			}
		case rec.Error != nil:
			_, _ = in.ReadByte()
			return rec.Error.err()
		case rec.Done:
			_, _ = in.ReadByte()
			return nil
		default:
			return &RemoteError{Message: "empty record"}
		}
	}
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}

var errLongLine = errors.New("line too long")

// readLine returns the next line without its end, valid until the next read. A
// line of more than limit bytes is an error, and so is one without an end.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(long)+len(line) > limit {
			return nil, errLongLine
		}
		long = append(long, line...)
		line, err = in.ReadSlice('\n')
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	long = append(long, line...)
	return long[:len(long)-1], nil
}

// lost is the error of a broken connection: the caller's own when it ended ctx.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &unavailable{reason: err.Error()}
}

func statusError(ctx context.Context, resp *http.Response) error {
	var rec record
	err := json.NewDecoder(io.LimitReader(resp.Body, maxControl)).Decode(&rec)
	if err != nil || rec.Error == nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &RemoteError{Message: "answered " + resp.Status}
	}
	return rec.Error.err()
}
