package train

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/ort/orttest"
	"athanor/engine/train/selftest"
)

// childSpec holds the spec of a job that this test binary runs as a child.
const childSpec = "ATHANOR_TEST_TRAIN_SPEC"

// TestChild is the child: it trains and prints a line for each event.
func TestChild(t *testing.T) {
	raw := os.Getenv(childSpec)
	if raw == "" {
		t.Skip("it is run by TestKilledProcesses")
	}
	spec := &engine.TrainSpec{}
	if err := json.Unmarshal([]byte(raw), spec); err != nil {
		t.Fatal(err)
	}
	emit := func(e *engine.TrainEvent) error {
		_, err := fmt.Printf("event %s %d\n", e.Type, e.Step)
		return err
	}
	j := &job{rt: orttest.Open(t), spec: spec, emit: emit, selftest: selftest.Run, disk: realDisk{}, now: time.Now} // a state after every step
	_, err := j.run(t.Context())
	if err := errors.Join(err, j.close()); err != nil {
		t.Fatal(err)
	}
}

// child trains in a process of its own, which is killed when it has printed so
// many lines, wherever it is then; negative is never. It reports whether the
// process came to its end.
func child(t *testing.T, spec *engine.TrainSpec, lines int) bool {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childSpec+"="+string(raw))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := ""
	for in := bufio.NewScanner(out); in.Scan(); {
		text += in.Text() + "\n"
		if lines--; lines == 0 {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		t.Fatalf("the child failed: %v\n%s", err, text)
	}
	return err == nil
}

// TestKilledProcesses kills processes of a job with SIGKILL at random places
// and compares the SHA-256 of the adapter with that of an unbroken run.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	orttest.Library(t)
	spec := tinySpec(t)
	eval := dataset(t, answers(3)...)
	spec.TrainFile, spec.EvalFile, spec.Evals, spec.LoRA.Dropout = dataset(t, answers(12)...), &eval, 3, 0.1
	if !child(t, spec, -1) {
		t.Fatal("the unbroken run was killed")
	}
	want := sha256Of(t, filepath.Join(spec.WorkDir, "result/adapter/adapter_model.safetensors"))
	random := rand.New(rand.NewPCG(11, 5))
	killed := 0
	for range 2 {
		spec.WorkDir = filepath.Join(t.TempDir(), "work")
		for range 3 {
			if child(t, spec, 1+random.IntN(8)) {
				break
			}
			killed++
		}
		if !child(t, spec, -1) {
			t.Fatal("the last run was killed")
		}
		if got := sha256Of(t, filepath.Join(spec.WorkDir, "result/adapter/adapter_model.safetensors")); got != want {
			t.Errorf("the adapter has the SHA-256 %s, want %s", got, want)
		}
	}
	if killed < 4 {
		t.Errorf("only %d processes were killed", killed)
	}
	t.Logf("%d processes killed", killed)
}
