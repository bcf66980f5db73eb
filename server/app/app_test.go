package app_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"athanor/engine/enginetest"
	"athanor/server/app"
	"athanor/server/config"
	"athanor/server/kit"
	"athanor/server/servertest"
)

// TestMain makes this binary the program of its appliances' workers, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "worker" {
		if err := app.RunWorker(context.Background(), os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if dir := builtIn(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// appliance is an App that listens, with a mock in place of its workers.
type appliance struct {
	*app.App
	Base  string // http://host:port, without a version
	Admin string // the first key
	Addr  string
	Kit   kit.Kit
	Clock *servertest.Clock // stands still
	cfg   config.Config
}

// setting changes how an appliance is opened.
type setting func(*config.Config, *app.Options)

// open serves an App on a fresh data directory until the test ends. Its engine
// is a Mock, its clock stands still and its ids are counted, unless a setting
// says otherwise.
func open(t testing.TB, settings ...setting) *appliance {
	t.Helper()
	k, clock := servertest.NewKit(t)
	cfg := config.Default()
	cfg.Data = dataDir(t)
	cfg.Drain = config.Duration(5 * time.Second)
	opt := app.Options{Log: k.Log, Kit: &k, Generator: &enginetest.Mock{}}
	for _, set := range settings {
		set(&cfg, &opt)
	}
	a, err := app.Open(t.Context(), cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(errors.Join(err, a.Close()))
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, a.Close()); err != nil {
			t.Errorf("close the appliance: %v", err)
		}
	})
	addr := ln.Addr().String()
	return &appliance{App: a, Base: "http://" + addr, Admin: a.FirstKey(), Addr: addr, Kit: k, Clock: clock, cfg: cfg}
}

// do sends a request to the appliance whatever host its URL names.
func (a *appliance) do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host, r.Host = "http", a.Addr, a.Addr
	return http.DefaultClient.Do(r)
}

// dataDir is a fresh directory whose path is short enough for a unix socket.
func dataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ath")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// built is the real binary, made once for all tests of the package.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func builtIn() string { return built.dir }

// binary builds the program on its first call and returns its path. Short runs,
// such as those with the race detector, which is not in it, leave it out.
func binary(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the real binary is left out of short runs")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "athanor-bin-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(built.dir, "athanor"), "-ldflags", "-X main.version=test", "athanor")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "athanor")
}

// root is the top of the source tree.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the source tree: %v", err)
	}
	return dir
}

// library is the folder of ONNX Runtime in the source tree; without one the
// test is skipped.
func library(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(root(t), "engine", "ort", "lib", runtime.GOOS+"-"+runtime.GOARCH)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no ONNX Runtime, scripts/get-onnxruntime fetches it: %v", err)
	}
	return dir
}

// process is a running `athanor serve`.
type process struct {
	Base string // http://host:port (https with TLS), without a version
	Addr string
	Key  string // the first key, "" when the data directory was not fresh
	Data string
	Cmd  *exec.Cmd

	log  *lines
	out  *lines
	done chan struct{} // closed when the process has ended
	err  error         // of Wait, once done
}

// openReal starts the real binary with real workers on a fresh data directory
// and waits until it is ready. It is stopped when the test ends.
func openReal(t testing.TB, args ...string) *process {
	t.Helper()
	return serve(t, dataDir(t), nil, append([]string{"--onnxruntime", library(t)}, args...)...)
}

// serve starts `athanor serve` on the data directory, on a port that is free,
// with these additions to the environment and to the arguments.
func serve(t testing.TB, data string, env []string, args ...string) *process {
	t.Helper()
	_, err := os.Stat(filepath.Join(data, "athanor.db"))
	p := start(t, env, append([]string{"--data", data, "--listen", "127.0.0.1:0"}, args...)...)
	if p.Data = data; errors.Is(err, fs.ErrNotExist) {
		// Its two outputs are two pipes: the key may arrive after the log's line.
		within(t, 30*time.Second, "the first key", func() bool { p.Key = lastLine(p.out.String()); return p.Key != "" && !strings.Contains(p.Key, " ") })
	}
	return p
}

// start runs `athanor serve` with just these arguments and waits until it
// serves.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	p := &process{log: &lines{}, out: &lines{}, done: make(chan struct{})}
	p.Cmd = exec.Command(binary(t), append([]string{"serve"}, args...)...)
	p.Cmd.Env = append(os.Environ(), env...)
	p.Cmd.Stdout, p.Cmd.Stderr = p.out, p.log
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = p.Cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("log of the server:\n%s", p.log)
		}
	})
	p.Addr = p.awaitLog(t, regexp.MustCompile(`msg"?[=:]"?serving"?.*address"?[=:]"?([0-9.:\[\]]+)`))
	p.Base = "http://" + p.Addr
	if p.log.match(regexp.MustCompile(`msg"?[=:]"?serving"?.*tls"?[=:]true`)) != "" {
		p.Base = "https://" + p.Addr
	}
	return p
}

// awaitLog waits until a line of the log matches and returns its first group.
func (p *process) awaitLog(t testing.TB, pattern *regexp.Regexp) string {
	t.Helper()
	found := ""
	within(t, 30*time.Second, "the log to have "+pattern.String(), func() bool {
		found = p.log.match(pattern)
		select {
		case <-p.done:
			if found == "" {
				t.Fatalf("the server ended: %v\n%s", p.err, p.log)
			}
		default:
		}
		return found != ""
	})
	return found
}

// stop asks the process to end, waits for it, and kills it when it does not.
// It returns the exit code; it may be called more than once.
func (p *process) stop(t testing.TB) int {
	t.Helper()
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		t.Error("the server did not stop on SIGTERM")
		_ = p.Cmd.Process.Kill()
		<-p.done
	}
	return p.Cmd.ProcessState.ExitCode()
}

// run runs the binary with arguments and returns what it printed.
func run(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// within polls until done says yes.
func within(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
}

// post sends JSON with a key and returns the status and the body.
func post(t testing.TB, url, key, body string) (int, string) {
	t.Helper()
	return send(t, http.MethodPost, url, key, body)
}

// get fetches with a key ("" for none) and returns the status and the body.
func get(t testing.TB, url, key string) (int, string) {
	t.Helper()
	return send(t, http.MethodGet, url, key, "")
}

func send(t testing.TB, method, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// lines is output that can be read while it is written.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// match is the first group of the first line that matches, or "".
func (l *lines) match(pattern *regexp.Regexp) string {
	for s := bufio.NewScanner(strings.NewReader(l.String())); s.Scan(); {
		if m := pattern.FindStringSubmatch(s.Text()); m != nil {
			return m[len(m)-1]
		}
	}
	return ""
}

// lastLine is the last line that is not empty.
func lastLine(s string) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return all[len(all)-1]
}

// TestOpen checks the harness itself, and what every client sees first.
func TestOpen(t *testing.T) {
	t.Parallel()
	a := open(t)
	if status, body := get(t, a.Base+"/readyz", ""); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, body := get(t, a.Base+"/v1/whoami", a.Admin); status != http.StatusOK || !strings.Contains(body, `"project_slug":"default"`) {
		t.Errorf("whoami: %d %s", status, body)
	}
	status, body := post(t, a.Base+"/v1/completions", a.Admin, `{"model":"athanor/demo-3m","prompt":"a","max_tokens":2}`)
	if status != http.StatusOK || !strings.Contains(body, `"finish_reason":"length"`) {
		t.Errorf("completions: %d %s", status, body)
	}
}
