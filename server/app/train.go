package app

import (
	"context"

	"athanor/engine"
)

// newTrainer is what the jobs of slices train with: processes of the supervisor,
// or other when a test gives one.
func (a *App) newTrainer(other engine.Trainer) engine.Trainer {
	switch {
	case other != nil:
		return other
	case a.noLibrary != nil:
		return noTrainer{}
	}
	return a.host
}

// noTrainer keeps jobs waiting on a server that lacks the runtime: they can be
// done after a restart with it.
type noTrainer struct{}

// Train implements engine.Trainer.
func (noTrainer) Train(context.Context, *engine.TrainSpec, func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
	return nil, &engine.BusyError{Reason: "this server cannot train: ONNX Runtime was not found; athanor doctor says more"}
}
