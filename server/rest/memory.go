package rest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// Test serves one request over a connection in memory, without a listener.
// The response's body must be closed; a stream can be read as it comes.
func (s *Server) Test(r *http.Request) (*http.Response, error) {
	client, server := net.Pipe()
	go func() { _ = s.http.ServeConn(s.track(server)) }()
	go func() { _ = r.Write(client) }() // fails when the server answers before the end, which is its right
	resp, err := http.ReadResponse(bufio.NewReader(client), r)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	resp.Body = &testBody{resp.Body, client}
	return resp, nil
}

// testBody closes the connection with the body.
type testBody struct {
	io.ReadCloser
	conn net.Conn
}

func (b *testBody) Close() error { return errors.Join(b.ReadCloser.Close(), b.conn.Close()) }
