package app

import (
	"context"
	"log/slog"
	"os"
	"time"

	"athanor/engine"
	"athanor/engine/llm"
	"athanor/engine/ort"
	"athanor/engine/train"
	"athanor/engine/worker"
)

// RunWorker is the whole life of a worker process: it loads the one model that
// its parent names and serves it, or runs the one training job, until the parent
// says stop or goes away. library is the path of ONNX Runtime.
func RunWorker(ctx context.Context, library string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return worker.Run(ctx, func(ctx context.Context, spec worker.Spec) (engine.Generator, error) {
		rt, err := ort.Open(ort.Options{Library: library, LogTo: log})
		if err != nil {
			return nil, err
		}
		m, err := llm.Load(ctx, rt, llm.Options{
			Name: spec.Name, Dir: spec.Dir, Quantization: llm.Quantization(spec.Quantization), CacheDir: spec.CacheDir,
			Threads: spec.Threads, Context: spec.Context, Slots: spec.Slots, Adapters: spec.Adapters, Now: time.Now,
			Progress: progressLog(log),
		})
		if err != nil {
			return nil, err
		}
		return m, nil
	}, func(ctx context.Context, spec *engine.TrainSpec, emit func(*engine.TrainEvent) error) (*engine.TrainResult, error) {
		rt, err := ort.Open(ort.Options{Library: library, LogTo: log})
		if err != nil {
			return nil, err
		}
		result, err := train.Run(ctx, rt, spec, emit)
		if err := rt.Close(); err != nil {
			log.Warn("the runtime does not close", "error", err)
		}
		return result, err
	})
}

// progressLog reports a conversion at every tenth.
func progressLog(log *slog.Logger) func(done, total int64) {
	last := int64(-1)
	return func(done, total int64) {
		if total <= 0 {
			return
		}
		if tenth := done * 10 / total; tenth != last {
			last = tenth
			log.Info("converting weights", "percent", tenth*10)
		}
	}
}
