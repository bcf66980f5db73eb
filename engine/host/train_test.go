package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"athanor/engine"
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
		var food [][]byte
		for {
			food = append(food, bytes.Repeat([]byte{1}, 1<<20))
			time.Sleep(time.Millisecond)
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
