package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"athanor/engine"
	"athanor/server/jobs"
)

// busyAgain is when a job that found no room is tried again. To ask costs little:
// a job that is known not to fit is refused without starting its process.
const busyAgain = 10 * time.Second

// trainer is what the slices' jobs train with: the supervisor's processes.
type trainer struct {
	engine.Trainer
	unable error // why this machine cannot train, nil when it can
}

// newTrainer trains in worker processes, or with other when a test gives one.
func (a *App) newTrainer(other engine.Trainer) engine.Trainer {
	if other != nil {
		return &trainer{Trainer: other}
	}
	return &trainer{Trainer: a.host, unable: a.noLibrary}
}

// Train implements engine.Trainer. A job that has to wait gets an error that
// also tells the queue to put it back.
func (t *trainer) Train(ctx context.Context, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	if t.unable != nil {
		return nil, fmt.Errorf("%w: ONNX Runtime was not found: %w", engine.ErrUnavailable, t.unable)
	}
	result, err := t.Trainer.Train(ctx, spec, emit)
	if busy := new(engine.BusyError); errors.As(err, &busy) {
		return nil, jobs.Later(busyAgain, err)
	}
	return result, err
}
