package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"athanor/engine"
)

// job is a training child in this process, seen by its parent.
type job struct {
	in       *io.PipeWriter
	pipe     *io.PipeReader
	progress *ProgressReader
	orphaned chan struct{}
	ended    chan error
}

// startTraining runs a child that trains; the end of the test ends its input.
func startTraining(ctx context.Context, t *testing.T, spec *engine.TrainSpec, train TrainFunc) *job {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	j := &job{in: inW, pipe: outR, progress: NewProgressReader(outR), orphaned: make(chan struct{}), ended: make(chan error, 1)}
	c := child{in: inR, ready: outW, beatEvery: time.Millisecond, orphaned: func() { close(j.orphaned) }}
	go func() { j.ended <- c.run(ctx, nil, train); _ = outW.Close() }()
	t.Cleanup(func() {
		_ = inW.Close()
		<-j.orphaned
	})
	if _, err := (Launch{Train: spec}).WriteTo(inW); err != nil {
		t.Fatal(err)
	}
	return j
}

// next returns the next line that is no sign of life, and counts those.
func (j *job) next(t *testing.T) (p Progress, beats int) {
	t.Helper()
	for {
		p, err := j.progress.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !p.Alive {
			return p, beats
		}
		beats++
	}
}

func TestTrainingChild(t *testing.T) {
	spec := &engine.TrainSpec{Job: "ft-1", LearningRate: 1e-5, LoRA: &engine.LoRA{Rank: 8}}
	step := &engine.TrainEvent{Type: engine.TrainStep, Step: 1, Metrics: map[string]float64{"train/loss": 2.5}}
	want := &engine.TrainResult{Steps: 1, ModelDir: "/m"}
	long := make(chan struct{})
	var got *engine.TrainSpec
	j := startTraining(t.Context(), t, spec, func(_ context.Context, s *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
		got = s
		if err := emit(step); err != nil {
			return nil, err
		}
		<-long
		return want, nil
	})
	if p, _ := j.next(t); !reflect.DeepEqual(p.Event, step) || p.Err() != nil {
		t.Errorf("got %+v, want %+v", p, step)
	}
	if !reflect.DeepEqual(got, spec) {
		t.Errorf("the child got %+v, want %+v", got, spec)
	}
	for range 3 { // while the step computes
		if p, err := j.progress.Next(); err != nil || !p.Alive {
			t.Errorf("got %+v, %v, want a sign of life", p, err)
		}
	}
	close(long)
	if p, _ := j.next(t); !reflect.DeepEqual(p.Result, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if _, err := j.progress.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the last line: %v", err)
	}
	if err := <-j.ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestTrainingChildErrors(t *testing.T) {
	slog.SetLogLoggerLevel(slog.LevelError + 1)
	emitting := func(ev *engine.TrainEvent) TrainFunc {
		return func(_ context.Context, _ *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
			return &engine.TrainResult{}, emit(ev)
		}
	}
	failing := func(err error) TrainFunc {
		return func(context.Context, *engine.TrainSpec, func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
			return nil, err
		}
	}
	remote := func(err error) bool { return errors.As(err, new(*RemoteError)) }
	tests := []struct {
		name  string
		train TrainFunc
		want  string
		check func(error) bool
	}{
		{"data", failing(fmt.Errorf("read: %w", &engine.DataError{File: "validation", Line: 3, Message: "Line 3: bad"})), "Line 3: bad", func(err error) bool {
			got := new(engine.DataError)
			return errors.As(err, &got) && got.File == "validation" && got.Line == 3
		}},
		{"request", failing(&engine.RequestError{Param: "lora_r", Message: "too large"}), "too large", func(err error) bool {
			got := new(engine.RequestError)
			return errors.As(err, &got) && got.Param == "lora_r"
		}},
		{"memory", failing(fmt.Errorf("%w: 3 GiB", engine.ErrNoMemory)), "not enough memory to train: 3 GiB", func(err error) bool { return errors.Is(err, engine.ErrNoMemory) }},
		{"busy", failing(fmt.Errorf("take up: %w", &engine.BusyError{Reason: "it needs 3 GiB"})), "it needs 3 GiB", func(err error) bool {
			got := new(engine.BusyError)
			return errors.As(err, &got) && got.Reason == "it needs 3 GiB"
		}},
		{"internal", failing(errors.New("no gradient")), "no gradient", remote},
		{"panic", func(context.Context, *engine.TrainSpec, func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
			var none []int
			_ = none[len(none)]
			return nil, nil
		}, "panic: runtime error: index out of range", remote},
		{"nothing at all", failing(nil), "without a result", remote},
		{"no training function", nil, "cannot train", remote},
		{"not a number", emitting(&engine.TrainEvent{Type: engine.TrainStep, Step: 4, Metrics: map[string]float64{"train/loss": math.NaN()}}), "report event step of step 4: json: unsupported value: NaN", remote},
		{"a huge event", emitting(&engine.TrainEvent{Type: engine.TrainWarning, Message: strings.Repeat("x", maxControl)}), "report event warning of step 0: line too long", remote},
		{"a huge result", func(context.Context, *engine.TrainSpec, func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
			return &engine.TrainResult{ModelDir: strings.Repeat("x", maxControl)}, nil
		}, "report the end of the training: line too long", remote},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := startTraining(t.Context(), t, &engine.TrainSpec{}, tt.train)
			p, _ := j.next(t)
			if err := p.Err(); err == nil || !strings.Contains(err.Error(), tt.want) || !tt.check(err) {
				t.Errorf("got %v (%T), want %q", err, err, tt.want)
			}
			if _, err := j.progress.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("after the last line: %v", err)
			}
			if err := <-j.ended; err != nil && tt.train != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
}

func TestTrainingChildIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	j := startTraining(ctx, t, &engine.TrainSpec{}, func(ctx context.Context, _ *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
		<-ctx.Done()
		// What it saves at the end may be reported.
		return nil, errors.Join(ctx.Err(), emit(&engine.TrainEvent{Type: engine.TrainCheckpoint}))
	})
	cancel()
	if p, _ := j.next(t); p.Event == nil || p.Event.Type != engine.TrainCheckpoint {
		t.Errorf("got %+v, want the checkpoint", p)
	}
	if p, _ := j.next(t); !errors.Is(p.Err(), engine.ErrUnavailable) {
		t.Errorf("got %+v, want ErrUnavailable: nobody who listens asked for it", p)
	}
	if err := <-j.ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestTrainingChildWithoutReader has a parent that hangs up.
func TestTrainingChildWithoutReader(t *testing.T) {
	j := startTraining(t.Context(), t, &engine.TrainSpec{}, func(_ context.Context, _ *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
		for {
			if err := emit(&engine.TrainEvent{Type: engine.TrainStep}); err != nil {
				return nil, err
			}
		}
	})
	if err := j.pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-j.ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("run: %v", err)
	}
}

func TestProgressReaderRefusesNonsense(t *testing.T) {
	tests := map[string]struct {
		text string
		gone bool // as if the child had died
	}{
		"nothing":    {"", true},
		"cut":        {`{"alive":true}`, true},
		"not JSON":   {"step 1\n", false},
		"empty":      {"{}\n", false},
		"not alive":  {`{"alive":false}` + "\n", false},
		"two fields": {`{"alive":true,"result":{}}` + "\n", false},
		"a list":     {"[]\n", false},
		"null":       {"null\n", false},
		"wrong type": {`{"event":{"step":"one"}}` + "\n", false},
		"endless":    {strings.Repeat("x", 2*maxControl), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := NewProgressReader(strings.NewReader(tt.text)).Next()
			if err == nil || p.valid() || errors.Is(err, io.ErrUnexpectedEOF) != tt.gone {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"alive":true}` + "\n" + `{"event":{"type":"step","step":1}}` + "\n"))
	f.Add([]byte(`{"error":{"kind":"data","line":7,"message":"m"}}` + "\n"))
	f.Add([]byte(`{"result":{"steps":1}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewProgressReader(strings.NewReader(string(text)))
		for {
			p, err := r.Next()
			if err != nil {
				return
			}
			if !p.valid() || p.Error != nil && p.Err() == nil {
				t.Fatalf("%+v from %q", p, text)
			}
		}
	})
}
