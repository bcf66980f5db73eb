package host_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/engine/host"
	"athanor/engine/worker"
)

// roleEnv makes this test binary play another program.
const roleEnv = "ATHANOR_HOST_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "worker":
		if err := worker.Run(context.Background(), load, train); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "deaf":
		deaf()
	case "server":
		server()
	}
	goleak.VerifyTestMain(m)
}

// knobs travel in Spec.Dir.
type knobs struct {
	StepDelay time.Duration
	LoadDelay time.Duration
	LoadErr   string
	Crash     int
	Log       string // written at load
	Panic     bool   // at load
}

func (k knobs) spec(key string) host.Spec {
	dir, err := json.Marshal(k)
	if err != nil {
		panic(err)
	}
	return host.Spec{Key: key, Spec: worker.Spec{Name: key, Dir: string(dir)}}
}

// load is the loader of the worker role.
func load(ctx context.Context, spec worker.Spec) (engine.Generator, error) {
	var k knobs
	if err := json.Unmarshal([]byte(spec.Dir), &k); err != nil {
		return nil, err
	}
	fmt.Fprint(os.Stderr, k.Log)
	if k.Panic {
		go func() { panic("the loader is broken") }()
		select {}
	}
	m := &enginetest.Mock{Info: engine.ModelInfo{Name: spec.Name}, StepDelay: k.StepDelay, LoadDelay: k.LoadDelay, Crash: k.Crash}
	if k.LoadErr != "" {
		m.LoadErr = errors.New(k.LoadErr)
	}
	if err := m.Load(ctx); err != nil {
		return nil, err
	}
	return &hog{Mock: m}, nil
}

// hog eats memory when it is told to.
type hog struct {
	*enginetest.Mock
	mu   sync.Mutex
	food [][]byte
}

func (h *hog) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	if mib, ok := strings.CutPrefix(req.Prompt, "eat "); ok {
		n, _ := strconv.Atoi(mib)
		h.mu.Lock()
		for range n {
			h.food = append(h.food, bytes.Repeat([]byte{1}, 1<<20))
		}
		h.mu.Unlock()
	}
	return h.Mock.Generate(ctx, req, emit)
}

// deaf is a worker that does not care about its standard input: only the
// kernel can end it when its parent dies.
func deaf() {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(1)
	}
	ready := os.NewFile(3, "ready")
	fmt.Fprintln(ready, `{"ready":{"name":"deaf"}}`)
	_ = ready.Close()
	select {}
}

// server is a parent that can be killed: it prints the pids of its workers.
func server() {
	h, err := host.New(host.Config{
		RunDir: os.Args[1], Log: slog.New(slog.DiscardHandler),
		Args: func(s host.Spec) []string {
			if role, ok := strings.CutPrefix(s.Key, "training "); ok {
				return []string{role}
			}
			return []string{s.Key}
		},
		Env: os.Environ(), Exe: os.Args[2],
	})
	if err != nil {
		panic(err)
	}
	trains := make(chan struct{})
	go func() {
		_, err := h.Train(context.Background(), trainKnobs{Steps: 2, At: 2, Do: "deaf"}.spec("worker", os.Args[3]), func(ev *engine.TrainEvent) error {
			if ev.Step == 1 {
				close(trains)
			}
			return nil
		})
		panic(err)
	}()
	<-trains
	fmt.Println(h.Training()[0].PID)
	for _, key := range []string{"worker", "deaf"} {
		if _, err := h.Acquire(context.Background(), knobs{}.spec(key)); err != nil {
			panic(err)
		}
	}
	for _, s := range h.Snapshot() {
		fmt.Println(s.PID)
	}
	fmt.Println("ready")
	select {}
}

// newHost runs workers that are this test binary.
func newHost(t *testing.T, cfg host.Config) *host.Host {
	t.Helper()
	if cfg.RunDir == "" {
		cfg.RunDir = filepath.Join(t.TempDir(), "run")
	}
	cfg.Args = func(host.Spec) []string { return nil }
	if cfg.Env == nil {
		// A program built for race detection otherwise takes a second to exit.
		cfg.Env = append(os.Environ(), roleEnv+"=worker", "GORACE=atexit_sleep_ms=0")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h, err := host.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(cfg.RunDir, "*")); len(left) != 0 {
			t.Errorf("left in the run folder: %v", left)
		}
	})
	return h
}

func acquire(t *testing.T, h *host.Host, spec host.Spec) *host.Lease {
	t.Helper()
	l, err := h.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func pid(t *testing.T, h *host.Host, key string) int {
	t.Helper()
	for _, s := range h.Snapshot() {
		if s.Key == key && s.PID != 0 {
			return s.PID
		}
	}
	t.Fatalf("%s has no process", key)
	return 0
}

func generate(t *testing.T, l *host.Lease, req engine.GenerateRequest) error {
	t.Helper()
	_, err := enginetest.Collect(t.Context(), t, l.Generator(), &req)
	return err
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestLeasedWorkerKeepsTheContract(t *testing.T) {
	h := newHost(t, host.Config{})
	l := acquire(t, h, knobs{}.spec("a"))
	defer l.Release()
	enginetest.CheckGenerator(t, l.Generator())
}

// TestKillInMidStream kills a worker with -9 fifty times while it streams.
func TestKillInMidStream(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	h := newHost(t, host.Config{})
	spec := knobs{StepDelay: time.Millisecond}.spec("a")
	acquire(t, h, spec).Release()
	files, slowest := openFiles(t), time.Duration(0)
	pids := map[int]bool{}
	for round := range rounds {
		l := acquire(t, h, spec)
		victim := pid(t, h, "a")
		pids[victim] = true
		var killed time.Time
		tokens := 0
		err := l.Generator().Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 4000}, func(e *engine.Event) error {
			if tokens += len(e.Tokens); tokens == 3 {
				killed = time.Now()
				return syscall.Kill(victim, syscall.SIGKILL)
			}
			return nil
		})
		took := time.Since(killed)
		slowest = max(slowest, took)
		if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "signal: killed") {
			t.Fatalf("round %d: the stream ended with %v after %d tokens", round, err, tokens)
		}
		if took > 2*time.Second {
			t.Errorf("round %d: the stream took %v to end", round, took)
		}
		l.Release()
		next := acquire(t, h, spec)
		if err := generate(t, next, engine.GenerateRequest{MaxTokens: 2}); err != nil {
			t.Fatalf("round %d: the next request: %v", round, err)
		}
		next.Release()
	}
	for p := range pids {
		if !gone(p) {
			t.Errorf("process %d is still there", p)
		}
	}
	if len(pids) != rounds {
		t.Errorf("%d processes in %d rounds", len(pids), rounds)
	}
	if now := openFiles(t); now > files+4 {
		t.Errorf("%d open files, %d at the start", now, files)
	}
	t.Logf("%d kills; the slowest stream ended %v after its worker", rounds, slowest)
}

func TestTroubleWhileLoading(t *testing.T) {
	tests := []struct {
		name  string
		knobs knobs
		limit time.Duration
		class host.Class
		want  string
		check func(error) bool
	}{
		{"the worker says why", knobs{LoadErr: "tokenizer.json is missing"}, 0, host.ClassLoad, "tokenizer.json is missing",
			func(err error) bool { return errors.As(err, new(*worker.LoadError)) }},
		{"it panics", knobs{Panic: true}, 0, host.ClassCrash, "panic: the loader is broken", func(error) bool { return true }},
		{"it takes too long", knobs{LoadDelay: time.Hour}, 300 * time.Millisecond, host.ClassStart, "killed while loading", func(error) bool { return true }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t, host.Config{LoadTimeout: tt.limit})
			_, err := h.Acquire(t.Context(), tt.knobs.spec("a"))
			if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) || !tt.check(err) {
				t.Errorf("got %v, want ErrUnavailable with %q", err, tt.want)
			}
			if s := h.Snapshot()[0]; s.State != host.Failed || s.Class != tt.class || s.PID != 0 {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	h := newHost(t, host.Config{Exe: "/nonexistent/athanor"})
	if _, err := h.Acquire(t.Context(), knobs{}.spec("a")); !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "/nonexistent/athanor") {
		t.Errorf("got %v", err)
	}
}

func TestProgramThatIsNoWorker(t *testing.T) {
	h := newHost(t, host.Config{Exe: "/bin/true"})
	if _, err := h.Acquire(t.Context(), knobs{}.spec("a")); !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("got %v", err)
	}
}

func TestCloseDrains(t *testing.T) {
	h := newHost(t, host.Config{})
	l := acquire(t, h, knobs{StepDelay: 10 * time.Millisecond}.spec("a"))
	p := pid(t, h, "a")
	closed := make(chan error, 1)
	var once sync.Once
	tokens := 0
	err := l.Generator().Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 20}, func(e *engine.Event) error {
		tokens += len(e.Tokens)
		once.Do(func() { go func() { closed <- h.Close(context.Background()) }() })
		return nil
	})
	if err != nil || tokens != 20 {
		t.Errorf("the request in flight: %v after %d tokens", err, tokens)
	}
	l.Release()
	if err := <-closed; err != nil || !gone(p) {
		t.Errorf("Close: %v, gone: %v", err, gone(p))
	}
}

// TestStoppedProcess has a worker that stands still, as one stuck in a driver.
func TestStoppedProcess(t *testing.T) {
	h := newHost(t, host.Config{HealthEvery: 20 * time.Millisecond, HealthTimeout: 100 * time.Millisecond})
	l := acquire(t, h, knobs{StepDelay: time.Millisecond}.spec("a"))
	defer l.Release()
	p := pid(t, h, "a")
	var once sync.Once
	err := l.Generator().Generate(t.Context(), &engine.GenerateRequest{MaxTokens: 4000}, func(*engine.Event) error {
		once.Do(func() { _ = syscall.Kill(p, syscall.SIGSTOP) })
		return nil
	})
	if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "did not answer") || !gone(p) {
		t.Errorf("got %v, gone: %v", err, gone(p))
	}
}

func TestGreedyProcess(t *testing.T) {
	h := newHost(t, host.Config{})
	spec := knobs{StepDelay: 5 * time.Millisecond}.spec("a")
	spec.MemoryLimit = 300 << 20
	l := acquire(t, h, spec)
	defer l.Release()
	if err := generate(t, l, engine.GenerateRequest{Prompt: "eat 10", MaxTokens: 1}); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	err := generate(t, l, engine.GenerateRequest{Prompt: "eat 400", MaxTokens: 4000})
	if !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "its limit is 300.0 MiB") {
		t.Errorf("above the limit: %v", err)
	}
	acquire(t, h, spec).Release()
	if s := h.Snapshot()[0]; s.Class != host.ClassMemory || s.State != host.Ready || s.Restarts != 1 {
		t.Errorf("status %+v", s)
	}
}

// TestControlGroupThatIsNone has a folder that only looks like a control group:
// workers run without one, and their limit is checked.
func TestControlGroupThatIsNone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	h := newHost(t, host.Config{CgroupDir: dir, Log: slog.New(slog.NewTextHandler(&out, nil))})
	spec := knobs{}.spec("a")
	spec.MemoryLimit = 1 << 30
	l := acquire(t, h, spec)
	defer l.Release()
	if err := generate(t, l, engine.GenerateRequest{MaxTokens: 2}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "its memory limit is only checked") {
		t.Errorf("nobody was told: %s", out.String())
	}
}

func TestProcessIsFirstVictim(t *testing.T) {
	h := newHost(t, host.Config{})
	acquire(t, h, knobs{}.spec("a")).Release()
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid(t, h, "a")))
	if err != nil || strings.TrimSpace(string(score)) != "500" {
		t.Errorf("out-of-memory score %q, %v", score, err)
	}
}

// TestLogs follows lines from the worker into the log and the status.
func TestLogs(t *testing.T) {
	var out lockedBuffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	h := newHost(t, host.Config{Log: log})
	spec := knobs{Log: "loading weights\nlevel=WARN msg=slow\n" + strings.Repeat("x", 10_000) + "\nnext\n", Crash: 1}.spec("tiny")
	l := acquire(t, h, spec)
	defer l.Release()
	if err := generate(t, l, engine.GenerateRequest{MaxTokens: 3}); !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Generate: %v", err)
	}
	acquire(t, h, spec).Release()
	s := h.Snapshot()[0]
	if len(s.Tail) < 4 || s.Tail[0] != "loading weights" || len(s.Tail[2]) > 5000 || !strings.HasSuffix(s.Tail[2], "[cut]") || s.Tail[3] != "next" {
		t.Errorf("tail %.200q", s.Tail)
	}
	for _, want := range []string{`"level":"INFO","msg":"worker log","worker":"tiny","model":"tiny","pid":`, `"line":"loading weights"`, `"level":"WARN","msg":"worker log"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestDeathOfTheServer kills a whole server with -9.
func TestDeathOfTheServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	// The workers' role comes from their arguments: their environment is the server's.
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	script := fmt.Sprintf("#!/bin/sh\n%s=$1 exec %s\n", roleEnv, os.Args[0])
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], dir, wrapper, t.TempDir())
	cmd.Env = append(os.Environ(), roleEnv+"=server")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var workers []int // as descriptors, which stay true when a pid is used again
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		p, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(p, 0)
		if err != nil {
			t.Fatalf("worker %d: %v", p, err)
		}
		defer unix.Close(fd)
		workers = append(workers, fd)
	}
	names := []string{"training", "deaf", "worker"}
	if len(workers) != len(names) {
		t.Fatalf("%d workers, want %d", len(workers), len(names))
	}
	for i, fd := range workers {
		if !alive(t, fd) {
			t.Fatalf("worker %s died too early", names[i])
		}
	}
	start := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for i, fd := range workers {
		waitGone(t, fd, names[i])
	}
	t.Logf("all workers gone %v after the server", time.Since(start))

	// A new server clears away what is left.
	h, err := host.New(host.Config{RunDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("left in the run folder: %v", left)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// alive asks a process descriptor, which becomes readable when its process ends.
func alive(t *testing.T, fd int) bool {
	t.Helper()
	return poll(t, fd, 0) == 0
}

func waitGone(t *testing.T, fd int, name string) {
	t.Helper()
	if poll(t, fd, 2000) == 0 {
		t.Errorf("worker %s lives on without its server", name)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

func poll(t *testing.T, fd, ms int) int {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if err == nil {
			return n
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// TestEndOfInput is the second line: a worker without a parent-death signal.
func TestEndOfInput(t *testing.T) {
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ready, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=worker")
	cmd.Stdin, cmd.ExtraFiles = stdin, []*os.File{child}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = stdin.Close(), child.Close()
	socket := filepath.Join(t.TempDir(), "w.sock")
	spec := knobs{}.spec("a")
	if _, err := (worker.Launch{Socket: socket, Spec: spec.Spec}).WriteTo(in); err != nil {
		t.Fatal(err)
	}
	client, err := worker.AwaitReady(ready, socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Health(t.Context()); err != nil {
		t.Error(err)
	}
	client.Close()
	_ = in.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("the worker ended with %v, want exit status 4", err)
	}
}

func TestRunDir(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"w1.sock", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := host.New(host.Config{RunDir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("%v is left, want both files: they are no sockets", left)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := host.New(host.Config{}); err == nil {
		t.Error("without a folder: no error")
	}
	if _, err := host.New(host.Config{RunDir: dir, CgroupDir: "/nonexistent"}); err == nil || !strings.Contains(err.Error(), "control group") {
		t.Errorf("with a control group that is not there: %v", err)
	}
}
