package train

import (
	"context"
	"errors"
	"fmt"
	"os"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/export"
	"athanor/engine/family"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// finish writes the results from the weights that the loop selected.
func (j *job) finish(ctx context.Context, l *loop) (*engine.TrainResult, error) {
	r := &engine.TrainResult{
		Steps: l.at.Step, Epochs: l.at.Step / l.times.epoch, Tokens: l.at.Tokens,
		EarlyStopped: l.at.Stopped, BestMetric: l.at.Stopping.Best, ModelDir: j.path("result", "model"),
	}
	if r.EarlyStopped {
		r.BestStep = l.at.selected()
	}
	if err := j.disk.MkdirAll(j.path("result")); err != nil {
		return nil, fmt.Errorf("make the folder of results: %w", err)
	}
	a := j.adapter()
	if a == nil {
		return r, j.exportFull(ctx, r.ModelDir)
	}
	rows, err := j.probeRows()
	if err != nil {
		return nil, err
	}
	parameters, threads := j.executor.Info().Parameters, j.plan.Threads
	// Merging and comparing need the memory.
	if err := j.close(); err != nil {
		return nil, err
	}
	r.AdapterDir = j.path("result", "adapter")
	if err := export.Adapter(r.AdapterDir, a); err != nil {
		return nil, err
	}
	if err := export.Merged(ctx, j.spec.ModelDir, a, r.ModelDir); err != nil {
		return nil, err
	}
	r.Export, err = j.compare(ctx, r, rows, parameters, threads)
	return r, err
}

// compare measures the merged model against the base with the adapter. Where
// that cannot be done the result stands, with a warning.
func (j *job) compare(ctx context.Context, r *engine.TrainResult, rows [][]int32, parameters int64, threads int) (*engine.ExportCheck, error) {
	budget := j.budget()
	// Both forms run in float32, one after the other.
	if need := parameters * 5; budget > 0 && need > budget {
		return &engine.ExportCheck{Warning: fmt.Sprintf("the merged model was not compared with base and adapter: this takes %d MiB, the job may use %d MiB", need>>20, budget>>20)}, nil
	}
	served := export.Form{Dir: j.spec.ModelDir, Adapter: &engine.Adapter{Key: j.key, Dir: r.AdapterDir}}
	check, err := export.Compare(ctx, j.rt, served, export.Form{Dir: r.ModelDir}, rows, export.CompareOptions{TempDir: j.spec.WorkDir, Threads: threads})
	switch {
	case err == nil:
		return check, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return &engine.ExportCheck{Warning: "the merged model was not compared with base and adapter: " + err.Error()}, nil
}

// exportFull writes the model with all weights as they are now.
func (j *job) exportFull(ctx context.Context, dir string) error {
	f, err := family.Open(os.DirFS(j.spec.ModelDir))
	if err != nil {
		return err
	}
	archive, err := weights.Open(j.spec.ModelDir)
	if err != nil {
		return err
	}
	d := f.Decoder()
	list, err := d.Weights(archive)
	if err = errors.Join(err, archive.Close()); err != nil {
		return err
	}
	// Params have the names of the checkpoint.
	stored, values := map[string]string{}, map[string]compute.Buffer{}
	for _, w := range list {
		stored[w.Name] = w.Stored
	}
	for _, p := range j.executor.Params() {
		values[p.Name] = p.Value
	}
	return export.Full(ctx, j.spec.ModelDir, func(name string) ([]float32, error) {
		b, ok := values[stored[name]]
		if !ok {
			return nil, fmt.Errorf("weight %q was not trained", name)
		}
		return tensor.View[float32](b.Bytes()), nil
	}, dir)
}
