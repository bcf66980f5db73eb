package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/host"
	"athanor/engine/ort"
	"athanor/server/app"
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

// shortConversations makes lines that are trained in no time.
func shortConversations(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"What is number %d?"},{"role":"assistant","content":"It is %d, as everybody knows."}]}`+"\n", i, i)
	}
	return b.String()
}

// smallJob trains the embedded model on a few conversations for some steps.
func smallJob(t testing.TB) *engine.TrainSpec {
	t.Helper()
	rows := shortConversations(12)
	file := filepath.Join(t.TempDir(), "train.jsonl")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(rows))
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

// fineTune is what these tests read of a job.
type fineTune struct {
	ID, Status string
	Events     []struct{ Type, Message string }
}

// startFineTune uploads a small dataset and creates a job of several epochs.
func (p *process) startFineTune(t testing.TB, epochs int) string {
	t.Helper()
	file, ok, err := sendFile(p.Base, p.Key, "fine-tune", shortConversations(16))
	if !ok || err != nil {
		t.Fatalf("upload: %v", err)
	}
	within(t, 30*time.Second, "the file to be checked", func() bool {
		_, body := get(t, p.Base+"/v1/files/"+file.ID, p.Key)
		return strings.Contains(body, "COMPLETED")
	})
	status, body := post(t, p.Base+"/v1/fine-tunes", p.Key, fmt.Sprintf(
		`{"training_file":%q,"model":%q,"n_epochs":%d,"batch_size":4,"packing":false,"learning_rate":0.001}`, file.ID, app.DemoModel, epochs))
	var f fineTune
	if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil || f.ID == "" {
		t.Fatalf("create: %d %s", status, body)
	}
	return f.ID
}

func (p *process) fineTune(t testing.TB, id string) (f fineTune) {
	t.Helper()
	status, body := get(t, p.Base+"/v1/fine-tunes/"+id, p.Key)
	if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil {
		t.Fatalf("retrieve: %d %s", status, body)
	}
	return f
}

// trains waits until the job's process has done a step more.
func (p *process) trains(t testing.TB, id string) (pid int) {
	t.Helper()
	rows := func() int {
		_, body := get(t, p.Base+"/v1/fine-tunes/"+id+"/metrics", p.Key)
		return strings.Count(body, `"train/loss"`)
	}
	before := rows()
	within(t, 2*time.Minute, "a step of the job", func() bool {
		<-time.After(50 * time.Millisecond) // the machine is busy enough
		if f := p.fineTune(t, id); f.Status == "error" || f.Status == "completed" {
			t.Fatalf("the job ended too early: %+v", f)
		}
		found := trainingChildren(t, p.Cmd.Process.Pid)
		if len(found) == 1 {
			pid = found[0]
		}
		return len(found) == 1 && rows() > before
	})
	return pid
}

// TestFineTuneIsKilled kills the process of a job, then the whole server, then
// stops the server in good order: each time nothing lives on, and the job ends well.
func TestFineTuneIsKilled(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	id := p.startFineTune(t, 20)
	p.trains(t, id)
	first := killTraining(t, p.Cmd.Process.Pid)
	second := p.trains(t, id)
	if first == second || alive(first) {
		t.Errorf("process %d was killed, %d trains", first, second)
	}
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the job's process to follow its server", func() bool { return !alive(second) })
	<-p.done

	again := func(p *process) *process {
		next := serve(t, p.Data, nil, "--onnxruntime", library(t))
		next.Key = p.Key
		return next
	}
	p = again(p)
	third := p.trains(t, id)
	if code := p.stop(t); code != 0 || alive(third) {
		t.Errorf("stopped with exit status %d, its job alive: %v", code, alive(third))
	}

	p = again(p)
	within(t, 5*time.Minute, "the end of the job", func() bool {
		<-time.After(100 * time.Millisecond)
		f := p.fineTune(t, id)
		if f.Status == "error" {
			t.Fatalf("the job failed: %+v", f)
		}
		return f.Status == "completed"
	})
	if left := trainingChildren(t, p.Cmd.Process.Pid); len(left) != 0 {
		t.Errorf("processes %v live on", left)
	}
	within(t, 10*time.Second, "the directory of the job to go", func() bool {
		left, _ := filepath.Glob(filepath.Join(p.Data, "training", "*"))
		return len(left) == 0
	})
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
