package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"athanor/server/app"
)

// load is the clients' process: as many connections as streams, each with one
// stream after another. They begin at different moments of the first stream.
func load(f flags) error {
	results := make([][]timing, f.streams)
	errs := make([]error, f.streams)
	var all sync.WaitGroup
	for i := range f.streams {
		all.Go(func() {
			<-time.After(time.Duration(rand.Int64N(int64(f.delay)*int64(f.tokens) + int64(100*time.Millisecond))))
			results[i], errs[i] = connection(f, i)
		})
	}
	all.Wait()
	enc := json.NewEncoder(os.Stdout)
	for i := range results {
		if errs[i] != nil {
			return fmt.Errorf("connection %d: %w", i, errs[i])
		}
		for _, t := range results[i] {
			if err := enc.Encode(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// connection runs the streams of one connection. It speaks HTTP by hand: what
// counts is the server's time, on a machine that the clients share with it.
func connection(f flags, number int) ([]timing, error) {
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var list []timing
	for round := range f.rounds {
		id := fmt.Sprintf("s%d-%d", number, round)
		t, err := stream(f, conn, in, id)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", id, err)
		}
		if round > 0 {
			list = append(list, t)
		}
	}
	return list, nil
}

func stream(f flags, conn net.Conn, in *bufio.Reader, id string) (timing, error) {
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":%d,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":%q}]}`,
		app.DemoModel, f.tokens, id)
	request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		f.addr, f.key, len(body), body)
	t := timing{ID: id}
	began := time.Now()
	if _, err := conn.Write([]byte(request)); err != nil {
		return t, err
	}
	status, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return t, fmt.Errorf("answer %q: %w", status, err)
	}
	events, done := 0, false
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case err != nil:
			return t, err
		case done && string(line) == "0\r\n": // the last chunk; an empty line follows
			t.Total = time.Since(began)
			if events != f.tokens {
				return t, fmt.Errorf("%d events, want %d", events, f.tokens)
			}
			_, err := in.ReadSlice('\n')
			return t, err
		case bytes.HasPrefix(line, []byte("data: [DONE]")):
			done = true
		case bytes.HasPrefix(line, []byte("data: ")):
			if events++; events == 1 {
				t.First = time.Since(began)
			}
		}
	}
}
