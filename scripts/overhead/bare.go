package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"athanor/engine"
	"athanor/engine/enginetest"
)

// bare is the server's process without a control plane: the same mock, the same
// connections and as many bytes, written as they are. What it adds is the floor
// that the machine sets.
func bare(f flags) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mock := &timed{mock: enginetest.Mock{StepDelay: f.delay}}
	fmt.Println(ln.Addr(), "no-key")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = ln.Close()
	}()
	var conns sync.WaitGroup
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			conns.Wait()
			return mock.print()
		}
		if err != nil {
			return err
		}
		conns.Go(func() {
			defer conn.Close()
			if err := talk(conn, mock); err != nil {
				fmt.Fprintln(os.Stderr, "bare:", err)
			}
		})
	}
}

// talk answers the requests of one connection.
func talk(conn net.Conn, mock *timed) error {
	for in := bufio.NewReader(conn); ; {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		req, err := http.ReadRequest(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var body struct {
			Messages  []json.RawMessage
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			return err
		}
		chunk := func(data string) error {
			_, err := fmt.Fprintf(conn, "%x\r\ndata: %s\n\n\r\n", len(data)+8, data)
			return err
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
			return err
		}
		err = mock.Generate(context.Background(), &engine.GenerateRequest{Messages: body.Messages, MaxTokens: body.MaxTokens}, func(ev *engine.Event) error {
			if len(ev.Tokens) == 0 {
				return nil
			}
			return chunk(likeness)
		})
		if err == nil {
			_, err = io.WriteString(conn, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
		}
		if err != nil {
			return err
		}
	}
}

// likeness is as long as an event of the control plane.
const likeness = `{"id":"chatcmpl-01a1fd9a-9f7a-7d52-a5c2-6a05ff6a0b5c","object":"chat.completion.chunk","created":1795254809,` +
	`"model":"athanor/demo-3m","choices":[{"index":0,"delta":{"role":"assistant","content":" quartz","token_id":123},"finish_reason":null,"logprobs":null}],"usage":null}`
