package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"athanor/engine"
)

// TrainFunc trains as engine.Trainer does, in this process.
type TrainFunc func(ctx context.Context, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error)

// Progress is one line that a training child writes on descriptor 3; exactly
// one of its fields is set. A line with a result or an error is the last.
type Progress struct {
	Alive  bool                `json:"alive,omitempty"` // nothing new, but it runs
	Event  *engine.TrainEvent  `json:"event,omitempty"`
	Result *engine.TrainResult `json:"result,omitempty"`
	Error  *wireError          `json:"error,omitempty"`
}

// Err is the error that ended the job, nil when this is no error: one of
// engine.Trainer, or *RemoteError for a failure inside the child.
func (p Progress) Err() error {
	if p.Error == nil {
		return nil
	}
	return p.Error.err()
}

func (p Progress) valid() bool {
	set := 0
	for _, is := range []bool{p.Alive, p.Event != nil, p.Result != nil, p.Error != nil} {
		if is {
			set++
		}
	}
	return set == 1
}

// ProgressReader reads what a training child writes.
type ProgressReader struct{ in *bufio.Reader }

// NewProgressReader reads from the parent's end of descriptor 3.
func NewProgressReader(r io.Reader) *ProgressReader { return &ProgressReader{bufio.NewReader(r)} }

// Next returns the next line. io.ErrUnexpectedEOF means that the child is gone;
// every other error means that it does not keep the protocol.
func (r *ProgressReader) Next() (Progress, error) {
	var p Progress
	line, err := readLine(r.in, maxControl)
	if err != nil {
		return p, fmt.Errorf("read progress: %w", err)
	}
	if err := json.Unmarshal(line, &p); err != nil {
		return Progress{}, fmt.Errorf("read progress: %w", err)
	}
	if !p.valid() {
		return Progress{}, errors.New("read progress: a line is not exactly one of alive, event, result and error")
	}
	return p, nil
}

// beatEvery is how often a training child says that it runs, whatever it does.
const beatEvery = 5 * time.Second

// train runs a job and reports it. An error of the job is told to the parent; an
// error is returned only when that fails.
func (c child) train(ctx context.Context, spec *engine.TrainSpec, train TrainFunc) error {
	if train == nil {
		return c.refuse(errors.New("this program cannot train"))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &progressWriter{w: c.ready}
	var beats sync.WaitGroup
	beats.Go(func() { out.beat(ctx, c.beatEvery) })
	result, err := protect(ctx, train, spec, func(ev *engine.TrainEvent) error {
		if err := out.write(Progress{Event: ev}); err != nil {
			return fmt.Errorf("report event %s of step %d: %w", ev.Type, ev.Step, err)
		}
		return nil
	})
	cancel()
	beats.Wait()
	last := Progress{Result: result}
	if err == nil && result == nil {
		err = errors.New("the training ended without a result")
	}
	if err != nil {
		last = Progress{Error: toWire(err)}
	}
	err = out.write(last)
	if errors.Is(err, errLongLine) {
		err = out.write(Progress{Error: toWire(fmt.Errorf("report the end of the training: %w", err))})
	}
	return errors.Join(err, c.ready.Close())
}

// protect calls train; a panic in its goroutine is an error like others.
func protect(ctx context.Context, train TrainFunc, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (result *engine.TrainResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic while training", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return train(ctx, spec, emit)
}

// progressWriter writes lines from several goroutines.
type progressWriter struct {
	mu sync.Mutex // one line at a time
	w  io.Writer
}

// write fails with errLongLine, and writes nothing, when the parent would not
// read the line.
func (w *progressWriter) write(p Progress) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(line) > maxControl {
		return fmt.Errorf("%w: %d bytes, the limit is %d", errLongLine, len(line), maxControl)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.w.Write(append(line, '\n'))
	return err
}

// beat writes a sign of life every so often until ctx ends or nobody reads.
func (w *progressWriter) beat(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.write(Progress{Alive: true}) != nil {
			return
		}
	}
}
