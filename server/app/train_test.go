package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"athanor/engine"
	"athanor/engine/host"
	"athanor/engine/ort"
)

// trainingChildren are the processes with this parent that train: they are nicer
// than it, and those that serve are not.
func trainingChildren(t testing.TB, parent int) (found []int) {
	t.Helper()
	for _, pid := range children(t, parent) {
		if nice(pid) > nice(parent) {
			found = append(found, pid)
		}
	}
	return found
}

// nice is field 19 of proc_pid_stat(5), or that of everybody for a process that is
// gone.
func nice(pid int) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(rest); len(fields) > 16 {
		n, _ = strconv.Atoi(fields[16])
	}
	return n
}

// killTraining kills the one training process of a server with SIGKILL and
// returns its pid.
func killTraining(t testing.TB, parent int) int {
	t.Helper()
	found := trainingChildren(t, parent)
	if len(found) != 1 {
		t.Fatalf("processes that train: %v, want one", found)
	}
	if err := syscall.Kill(found[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return found[0]
}

// smallJob trains the embedded model on a few conversations for some steps.
func smallJob(t testing.TB) *engine.TrainSpec {
	t.Helper()
	var rows strings.Builder
	for i := range 12 {
		fmt.Fprintf(&rows, `{"messages":[{"role":"user","content":"What is number %d?"},{"role":"assistant","content":"It is %d, as everybody knows."}]}`+"\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "train.jsonl")
	if err := os.WriteFile(file, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(rows.String()))
	return &engine.TrainSpec{
		Job: "ft-test", ModelName: "demo", ModelDir: demoFolder(t), WorkDir: t.TempDir(),
		TrainFile: engine.DataFile{Path: file, Type: "jsonl", SHA256: hex.EncodeToString(sum[:])},
		SFT:       &engine.SFT{TrainOnInputs: "auto"}, LoRA: &engine.LoRA{Rank: 4, Alpha: 8},
		Epochs: 2, Checkpoints: 2, BatchSize: 4, LearningRate: 1e-3, Schedule: engine.Schedule{Type: "linear"}, Seed: 7,
		MaxSeqLength: 64, MemoryBytes: 1 << 30,
	}
}

// trainingHost runs the real binary as its workers, without a server.
func trainingHost(t testing.TB) *host.Host {
	t.Helper()
	exe := binary(t)
	lib, err := ort.Locate(library(t), "")
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.New(host.Config{
		Exe: exe, Args: func(host.Spec) []string { return []string{"worker", "--library", lib} },
		RunDir: filepath.Join(t.TempDir(), "run"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// adapterHash is the content of the adapter that a job left.
func adapterHash(t testing.TB, result *engine.TrainResult) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(result.AdapterDir, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// TestTrainingInARealWorker trains with the real binary and engine, undisturbed
// and with kill -9 at every other step: the adapters are the same, byte for byte.
func TestTrainingInARealWorker(t *testing.T) {
	h := trainingHost(t)
	clean := smallJob(t)
	steps := 0
	result, err := h.Train(t.Context(), clean, func(ev *engine.TrainEvent) error {
		if ev.Type == engine.TrainStep {
			steps++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if steps == 0 || steps != result.Steps {
		t.Errorf("%d steps were reported, %d done", steps, result.Steps)
	}
	killed := *clean
	killed.WorkDir = t.TempDir()
	for at := 1; ; at += 2 {
		pid := 0
		again, err := h.Train(t.Context(), &killed, func(ev *engine.TrainEvent) error {
			if ev.Type == engine.TrainStep && ev.Step == at && pid == 0 {
				pid = killTraining(t, os.Getpid())
			}
			return nil
		})
		if err == nil {
			if got, want := adapterHash(t, again), adapterHash(t, result); got != want || at <= steps {
				t.Errorf("after %d kills the adapter is %s, undisturbed %s", at/2, got, want)
			}
			return
		}
		if pid == 0 || alive(pid) || !errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "signal: killed") {
			t.Fatalf("killed %d at step %d: %v", pid, at, err)
		}
		if at > steps {
			t.Fatalf("the job does not end: killed at step %d of %d", at, steps)
		}
	}
}
