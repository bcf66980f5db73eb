package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"athanor/server/app"
)

// longAnswer is a body that makes the demo model speak for 900 tokens: it may
// not end its text.
const longAnswer = `{"model":"` + app.DemoModel + `","prompt":"Tell me a story.","max_tokens":900,"stream":true,` +
	`"temperature":0,"logit_bias":{"2047":-100,"2045":-100}}`

const shortAnswer = `{"model":"` + app.DemoModel + `","prompt":"Tell me","max_tokens":2,` +
	`"temperature":0,"logit_bias":{"2047":-100,"2045":-100}}`

// event is what these tests read of one server-sent event.
type event struct {
	Choices []struct {
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Error *struct {
		Message, Type string
		Param, Code   *string
	} `json:"error"`
}

// eventStream is an open answer of server-sent events.
type eventStream struct {
	resp  *http.Response
	lines *bufio.Scanner
}

// stream opens a stream of completions, which has a minute to come to its end.
func stream(t testing.TB, client *http.Client, base, key, body string) *eventStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(ct, "text/event-stream") {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("no stream: %d %s %s", resp.StatusCode, ct, text)
	}
	return &eventStream{resp, newLines(resp.Body)}
}

// newLines reads lines of up to a mebibyte.
func newLines(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	return lines
}

// next returns the data of the next event; "" is the end of the answer.
func (s *eventStream) next() (string, error) {
	for s.lines.Scan() {
		if data, ok := strings.CutPrefix(s.lines.Text(), "data: "); ok {
			return data, nil
		}
	}
	return "", s.lines.Err()
}

// skip reads n events.
func (s *eventStream) skip(t testing.TB, n int) {
	t.Helper()
	for range n {
		if data, err := s.next(); err != nil || !strings.Contains(data, `"choices"`) {
			t.Fatalf("event %q, %v", data, err)
		}
	}
}

// cut reads to the end of a stream whose worker is gone: there must be one
// error event, the last, and a well-formed end.
func (s *eventStream) cut(t testing.TB) {
	t.Helper()
	failures := 0
	for {
		data, err := s.next()
		if err != nil {
			t.Fatalf("the answer has no proper end: %v", err)
		}
		if data == "" {
			break
		}
		if failures > 0 || data == "[DONE]" {
			t.Fatalf("after %d errors: %s", failures, data)
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if e.Error == nil {
			continue
		}
		failures++
		if e.Error.Type != "overloaded_error" || !strings.Contains(e.Error.Message, "worker went away") || e.Error.Param != nil || e.Error.Code != nil {
			t.Errorf("error event %s", data)
		}
	}
	if failures != 1 {
		t.Fatalf("%d error events, want 1", failures)
	}
}

// complete reads to the end of a stream that must end well and returns the
// number of its events, [DONE] aside.
func (s *eventStream) complete() (int, error) {
	for n := 0; ; n++ {
		data, err := s.next()
		switch {
		case err != nil:
			return n, err
		case data == "":
			return n, errors.New("the stream ended without [DONE]")
		case data == "[DONE]":
			return n, nil
		case strings.Contains(data, `"error"`):
			return n, errors.New(data)
		}
	}
}

// children are the processes that have this parent and still run.
func children(t testing.TB, parent int) []int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest) // state, parent, ...
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found = append(found, pid)
		}
	}
	return found
}

// worker is the one worker of the process.
func (p *process) worker(t testing.TB) int {
	t.Helper()
	found := children(t, p.Cmd.Process.Pid)
	if len(found) != 1 {
		t.Fatalf("the server has children %v, want one", found)
	}
	return found[0]
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// held is what a leak would make grow.
type held struct{ children, descriptors, sockets, goroutines int }

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

func (p *process) held(t testing.TB) held {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(p.Data, "run", "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	_, text := get(t, p.Base+"/metrics", "")
	m := goroutines.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no go_goroutines in the metrics:\n%.500s", text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return held{len(children(t, p.Cmd.Process.Pid)), len(fds), len(sockets), n}
}

// mustAnswer sends a short request that has to succeed.
func (p *process) mustAnswer(t testing.TB) {
	t.Helper()
	if status, body := post(t, p.Base+"/v1/completions", p.Key, shortAnswer); status != http.StatusOK || !strings.Contains(body, `"finish_reason":"length"`) {
		t.Fatalf("the next request: %d %s", status, body)
	}
}

// TestWorkerKilled kills the worker in mid-stream with SIGKILL, again and
// again. The next request is a short one in every other round; in the others it
// is the next stream, so that no request comes to its end between two deaths.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	rounds := 50
	if testing.Short() {
		rounds = 4
	}
	p := openReal(t)
	client := &http.Client{Transport: &http.Transport{}}
	kill := func(after int) {
		s := stream(t, client, p.Base, p.Key, longAnswer)
		s.skip(t, 1+after)
		if err := syscall.Kill(p.worker(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.cut(t)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the stream ended %s after its worker", took)
		}
	}
	settle := func() held {
		client.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		p.mustAnswer(t)
		return p.held(t)
	}
	kill(3) // the first death sets up what stays, so it is not measured
	before := settle()
	for i := range rounds {
		kill(i % 25)
		if i%2 == 0 {
			p.mustAnswer(t)
		}
	}
	var after held
	within(t, 10*time.Second, fmt.Sprintf("everything to be given back: %+v before", before), func() bool {
		after = settle()
		return after.children == 1 && after.sockets == before.sockets &&
			after.descriptors <= before.descriptors+2 && after.goroutines <= before.goroutines+2
	})
	_, text := get(t, p.Base+"/metrics", "")
	want := fmt.Sprintf("athanor_worker_restarts_total{model=%q} %d\n", app.DemoModel, rounds+1)
	if !strings.Contains(text, want) {
		t.Errorf("the metrics have no %s", want)
	}
}

// TestServerKilled kills the server: its workers must follow.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	s := stream(t, http.DefaultClient, p.Base, p.Key, longAnswer)
	s.skip(t, 2)
	pid := p.worker(t)
	began := time.Now()
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the worker to follow its server", func() bool { return !alive(pid) })
	if took := time.Since(began); took > time.Second {
		t.Errorf("the worker lived on for %s", took)
	}
	if _, err := s.complete(); err == nil {
		t.Error("the stream of a dead server ended well")
	}
	<-p.done
	again := serve(t, p.Data, nil, "--onnxruntime", library(t))
	again.Key = p.Key
	again.mustAnswer(t)
}

// TestWorkerFrozen stops the worker with SIGSTOP: the health probe must kill it,
// which takes three unanswered probes.
func TestWorkerFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("the probes take 20 seconds")
	}
	t.Parallel()
	p := openReal(t)
	s := stream(t, http.DefaultClient, p.Base, p.Key, longAnswer)
	s.skip(t, 2)
	pid := p.worker(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.cut(t)
	p.mustAnswer(t)
	if alive(pid) || p.worker(t) == pid {
		t.Error("the frozen worker is still there")
	}
}
