package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/host"
	"athanor/engine/worker"
	"athanor/gpu"
)

// trainKnobs travel in TrainSpec.ModelDir. The job counts its steps in a file of
// its WorkDir and goes on from there.
type trainKnobs struct {
	Steps     int
	StepDelay time.Duration
	At        int    // the step before which Do happens, 0 = before the plan
	Do        string // what goes wrong, see misbehave
	Plan      int64  // TrainPlan.MemoryBytes
	Needs     int64  // ErrNoMemory with less
}

func (k trainKnobs) spec(job, workDir string) *engine.TrainSpec {
	dir, err := json.Marshal(k)
	if err != nil {
		panic(err)
	}
	return &engine.TrainSpec{Job: job, ModelName: "base", ModelDir: string(dir), WorkDir: workDir}
}

// train is the training function of the worker role.
func train(ctx context.Context, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	var k trainKnobs
	if err := json.Unmarshal([]byte(spec.ModelDir), &k); err != nil {
		return nil, err
	}
	if spec.MemoryBytes < k.Needs {
		return nil, fmt.Errorf("%w: the smallest batch needs %d bytes", engine.ErrNoMemory, k.Needs)
	}
	counter := filepath.Join(spec.WorkDir, "step")
	text, _ := os.ReadFile(counter)
	done, _ := strconv.Atoi(string(text))
	if k.At == 0 {
		if err := misbehave(k.Do); err != nil {
			return nil, err
		}
	}
	plan := &engine.TrainPlan{Steps: k.Steps, ResumedAtStep: done, MemoryBytes: k.Plan, BatchSize: spec.Threads}
	if err := emit(&engine.TrainEvent{Type: engine.TrainPlanned, Plan: plan}); err != nil {
		return nil, err
	}
	for step := done + 1; step <= k.Steps; step++ {
		if step == k.At {
			if err := misbehave(k.Do); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), os.WriteFile(filepath.Join(spec.WorkDir, "saved"), nil, 0o600))
		case <-time.After(k.StepDelay):
		}
		if err := os.WriteFile(counter, []byte(strconv.Itoa(step)), 0o600); err != nil {
			return nil, err
		}
		if err := emit(&engine.TrainEvent{Type: engine.TrainStep, Step: step, Metrics: map[string]float64{"train/loss": 1 / float64(step)}}); err != nil {
			return nil, err
		}
	}
	result := &engine.TrainResult{Steps: k.Steps, ModelDir: spec.WorkDir}
	if k.Do == "huge result" {
		result.ModelDir = strings.Repeat("x", 2<<20)
	}
	return result, nil
}

var eaten [][]byte

// misbehave does what its name says; most of it does not return.
func misbehave(what string) error {
	const pipe = 3
	switch what {
	case "data error":
		return &engine.DataError{File: "training", Line: 7, Message: "Line 7: messages is empty"}
	case "request error":
		return &engine.RequestError{Param: "lora_rank", Message: "rank 4096 is too large"}
	case "no memory":
		return fmt.Errorf("%w: 3 GiB are needed", engine.ErrNoMemory)
	case "internal error":
		return errors.New("the optimiser lost its state")
	case "panic":
		panic("index out of range")
	case "panic elsewhere":
		go func() { panic("the data loader is broken") }()
		select {}
	case "deaf":
		select {}
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "exit":
		os.Exit(7)
	case "eat":
		for {
			eaten = append(eaten, bytes.Repeat([]byte{1}, 1<<20))
			<-time.After(time.Millisecond) // leaves the host time to look
		}
	case "close":
		_ = syscall.Close(pipe)
		select {}
	case "not JSON":
		_, _ = syscall.Write(pipe, []byte("Loading weights: 100%\n"))
		select {}
	case "nothing":
		_, _ = syscall.Write(pipe, []byte("{}\n"))
		select {}
	case "two things":
		_, _ = syscall.Write(pipe, []byte(`{"alive":true,"event":{"type":"step"}}`+"\n"))
		select {}
	case "huge line":
		for chunk := bytes.Repeat([]byte("x"), 4096); ; {
			if _, err := syscall.Write(pipe, chunk); err != nil {
				select {}
			}
		}
	case "cut line":
		_, _ = syscall.Write(pipe, []byte(`{"event":{"type":"st`))
		os.Exit(0)
	}
	return nil
}

// course is what a job reported.
type course struct {
	types   []engine.TrainEventType
	steps   []int
	resumed int
	threads int
	pids    map[int]bool
}

// runTraining runs a job; at calls during after each event, with the event's step.
func runTraining(ctx context.Context, h *host.Host, spec *engine.TrainSpec, during func(step int) error) (course, *engine.TrainResult, error) {
	c := course{pids: map[int]bool{}}
	result, err := h.Train(ctx, spec, func(ev *engine.TrainEvent) error {
		c.types = append(c.types, ev.Type)
		if ev.Plan != nil {
			c.resumed, c.threads = ev.Plan.ResumedAtStep, ev.Plan.BatchSize
		} else {
			c.steps = append(c.steps, ev.Step)
		}
		for _, s := range h.Training() {
			c.pids[s.PID] = true
		}
		if during != nil {
			return during(ev.Step)
		}
		return nil
	})
	return c, result, err
}

// allGone checks that nothing of the jobs is left.
func (c course) allGone(t *testing.T, h *host.Host) {
	t.Helper()
	for p := range c.pids {
		if !gone(p) {
			t.Errorf("process %d is still there", p)
		}
	}
	if left := h.Training(); len(left) != 0 {
		t.Errorf("the host still has %+v", left)
	}
}

func steps(from, to int) (list []int) {
	for i := from; i <= to; i++ {
		list = append(list, i)
	}
	return list
}

func ledger() *gpu.Ledger {
	return gpu.NewLedger(gpu.Device{ID: gpu.HostID, Kind: gpu.CPU, MemoryBytes: 8 << 30, Cores: 2})
}

func TestTrain(t *testing.T) {
	l := ledger()
	h := newHost(t, host.Config{Ledger: l})
	var during []gpu.Entry
	c, result, err := runTraining(t.Context(), h, trainKnobs{Steps: 3, Plan: 1 << 30}.spec("a", t.TempDir()), func(step int) error {
		during = l.Snapshot()
		return nil
	})
	if err != nil || result.Steps != 3 {
		t.Fatalf("got %+v, %v", result, err)
	}
	if !slices.Equal(c.steps, steps(1, 3)) || c.types[0] != engine.TrainPlanned || c.threads != 2 || len(c.pids) != 1 {
		t.Errorf("course %+v", c)
	}
	// What the plan does not need is given back, with a quarter for its error.
	want := []gpu.Entry{{Owner: "training a", Device: "cpu", Bytes: 5 << 28, Cores: 2}}
	if !slices.Equal(during, want) {
		t.Errorf("reserved %v while it trained, want %v", during, want)
	}
	if left := l.Snapshot(); len(left) != 0 {
		t.Errorf("reserved at the end: %v", left)
	}
	c.allGone(t, h)
}

// TestTrainingStandsBack reads the priority of all threads of a job, and its place
// when memory runs out.
func TestTrainingStandsBack(t *testing.T) {
	h := newHost(t, host.Config{})
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = runTraining(t.Context(), h, trainKnobs{Steps: 2}.spec("a", t.TempDir()), func(step int) error {
		if step != 1 {
			return nil
		}
		score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", h.Training()[0].PID))
		if err != nil || strings.TrimSpace(string(score)) != "800" {
			t.Errorf("out-of-memory score %q, %v", score, err)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", h.Training()[0].PID))
		if err != nil || len(threads) < 2 {
			t.Errorf("%d threads, %v", len(threads), err)
		}
		for _, name := range threads {
			text, err := os.ReadFile(name)
			if err != nil {
				continue // the thread ended
			}
			if got, want := nice(t, text), min(nice(t, own)+10, 19); got != want {
				t.Errorf("%s has nice %d, want %d", name, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// nice is field 19 of proc_pid_stat(5).
func nice(t *testing.T, stat []byte) int {
	t.Helper()
	_, rest, _ := strings.Cut(string(stat), ") ")
	n, err := strconv.Atoi(strings.Fields(rest)[16])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTrainingErrors(t *testing.T) {
	tests := []struct {
		do    string
		want  string
		check func(error) bool
	}{
		{"data error", "Line 7: messages is empty", func(err error) bool {
			got := new(engine.DataError)
			return errors.As(err, &got) && *got == engine.DataError{File: "training", Line: 7, Message: "Line 7: messages is empty"}
		}},
		{"request error", "rank 4096 is too large", func(err error) bool {
			got := new(engine.RequestError)
			return errors.As(err, &got) && got.Param == "lora_rank"
		}},
		{"no memory", "3 GiB are needed", func(err error) bool { return errors.Is(err, engine.ErrNoMemory) }},
		{"internal error", "the optimiser lost its state", func(err error) bool { return errors.As(err, new(*worker.RemoteError)) }},
		{"panic", "panic: index out of range", func(err error) bool { return errors.As(err, new(*worker.RemoteError)) }},
		{"huge result", "line too long", func(err error) bool { return errors.As(err, new(*worker.RemoteError)) }},
		{"panic elsewhere", "panic: the data loader is broken", isUnavailable},
		{"exit", "exit status 7", isUnavailable},
		{"close", "killed: it stopped reporting", isUnavailable},
		{"not JSON", "does not keep the protocol", isUnavailable},
		{"nothing", "does not keep the protocol", isUnavailable},
		{"two things", "does not keep the protocol", isUnavailable},
		{"huge line", "line too long", isUnavailable},
		{"cut line", "ended by itself", isUnavailable},
		{"stop", "no sign of life for 1s", isUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.do, func(t *testing.T) {
			t.Parallel()
			l := ledger()
			h := newHost(t, host.Config{Ledger: l, TrainSilence: time.Second})
			c, result, err := runTraining(t.Context(), h, trainKnobs{Steps: 3, At: 2, Do: tt.do}.spec("a", t.TempDir()), nil)
			if result != nil || err == nil || !strings.Contains(err.Error(), tt.want) || !tt.check(err) {
				t.Errorf("got %v, %v (%T); want %q", result, err, err, tt.want)
			}
			c.allGone(t, h)
			if left := l.Snapshot(); len(left) != 0 {
				t.Errorf("reserved at the end: %v", left)
			}
		})
	}
}

func isUnavailable(err error) bool { return errors.Is(err, engine.ErrUnavailable) }

// TestKilledTrainingGoesOn kills the job's process with -9 before each step in
// turn: the next run takes up where it was.
func TestKilledTrainingGoesOn(t *testing.T) {
	h := newHost(t, host.Config{})
	spec := trainKnobs{Steps: 6, StepDelay: time.Millisecond}.spec("a", t.TempDir())
	files := 0
	for at := range 6 {
		c, _, err := runTraining(t.Context(), h, spec, func(step int) error {
			if step == at {
				return syscall.Kill(h.Training()[0].PID, syscall.SIGKILL)
			}
			return nil
		})
		if !isUnavailable(err) || !strings.Contains(err.Error(), "signal: killed") {
			t.Fatalf("killed at step %d: %v", at, err)
		}
		c.allGone(t, h)
		if at == 0 {
			files = openFiles(t)
		}
	}
	if now := openFiles(t); now > files+2 {
		t.Errorf("%d open files, %d after the first run", now, files)
	}
	c, result, err := runTraining(t.Context(), h, spec, nil)
	if err != nil || result.Steps != 6 || c.resumed < 5 {
		t.Errorf("the last run: %+v, %+v, %v", c, result, err)
	}
}

// TestCancelledTraining cancels a job at each stage: it gets SIGTERM, and saves.
func TestCancelledTraining(t *testing.T) {
	for at := range 4 {
		t.Run(fmt.Sprint("step ", at), func(t *testing.T) {
			l := ledger()
			h := newHost(t, host.Config{Ledger: l})
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			c, result, err := runTraining(ctx, h, trainKnobs{Steps: 3, StepDelay: 20 * time.Millisecond}.spec("a", dir), func(step int) error {
				if step == at {
					cancel()
				}
				return nil
			})
			if at == 3 && err == nil && result.Steps == 3 { // its result overtook the cancel
				return
			}
			if result != nil || !errors.Is(err, context.Canceled) || errors.Is(err, engine.ErrUnavailable) {
				t.Errorf("got %v, %v", result, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "saved")); at < 3 && err != nil {
				t.Errorf("it saved nothing: %v", err)
			}
			c.allGone(t, h)
			if left := l.Snapshot(); len(left) != 0 {
				t.Errorf("reserved at the end: %v", left)
			}
		})
	}
}

func TestCancelBeforeTheStart(t *testing.T) {
	h := newHost(t, host.Config{Ledger: ledger()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, _, err := runTraining(ctx, h, trainKnobs{Steps: 3}.spec("a", t.TempDir()), nil)
	if !errors.Is(err, context.Canceled) || len(c.types) != 0 {
		t.Errorf("got %v after %v", err, c.types)
	}
}

// TestDeafTraining has a job that does not react to SIGTERM.
func TestDeafTraining(t *testing.T) {
	h := newHost(t, host.Config{TrainStop: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	c, _, err := runTraining(ctx, h, trainKnobs{Steps: 3, At: 2, Do: "deaf"}.spec("a", t.TempDir()), func(step int) error {
		if step == 1 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	c.allGone(t, h)
}

func TestEmitThatFails(t *testing.T) {
	h := newHost(t, host.Config{})
	full := errors.New("the database is full")
	c, _, err := runTraining(t.Context(), h, trainKnobs{Steps: 1000, StepDelay: time.Millisecond}.spec("a", t.TempDir()), func(step int) error {
		if step == 2 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || !slices.Equal(c.steps, steps(1, 2)) {
		t.Errorf("got %v after %v", err, c.steps)
	}
	c.allGone(t, h)
}

func TestGreedyTraining(t *testing.T) {
	h := newHost(t, host.Config{Ledger: ledger(), TrainMemory: 128 << 20})
	c, _, err := runTraining(t.Context(), h, trainKnobs{Steps: 3, At: 2, Do: "eat"}.spec("a", t.TempDir()), nil)
	if !isUnavailable(err) || !strings.Contains(err.Error(), "its limit is 128.0 MiB") {
		t.Errorf("got %v", err)
	}
	c.allGone(t, h)
}

// TestCloseStopsTraining closes the host while a job runs, which can be taken up.
func TestCloseStopsTraining(t *testing.T) {
	h := newHost(t, host.Config{})
	var once sync.Once
	c, _, err := runTraining(t.Context(), h, trainKnobs{Steps: 100000, StepDelay: time.Millisecond}.spec("a", t.TempDir()), func(int) error {
		once.Do(func() {
			go func() { _ = h.Close(context.Background()) }()
		})
		return nil
	})
	if !errors.Is(err, host.ErrClosed) || !isUnavailable(err) {
		t.Errorf("got %v", err)
	}
	c.allGone(t, h)
	if _, err := h.Train(t.Context(), trainKnobs{}.spec("b", t.TempDir()), nil); !errors.Is(err, host.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestTrainingOfAProgramThatIsNone(t *testing.T) {
	for exe, want := range map[string]string{"/nonexistent/athanor": "/nonexistent/athanor", "/bin/true": "ended by itself", "/bin/false": "exit status 1"} {
		h := newHost(t, host.Config{Exe: exe})
		if _, err := h.Train(t.Context(), trainKnobs{}.spec("a", t.TempDir()), nil); !isUnavailable(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", exe, err, want)
		}
	}
}

func TestTrainingElsewhereIsRefused(t *testing.T) {
	h := newHost(t, host.Config{})
	for _, device := range []string{"cuda", "GPU-5fd1"} {
		spec := trainKnobs{}.spec("a", t.TempDir())
		spec.Device = device
		_, err := h.Train(t.Context(), spec, nil)
		if got := new(engine.RequestError); !errors.As(err, &got) || got.Param != "device" || !strings.Contains(got.Message, "no CUDA provider") || !strings.Contains(got.Message, device) {
			t.Errorf("%s: got %v", device, err)
		}
	}
}
