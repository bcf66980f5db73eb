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
	"athanor/engine/family/decoder"
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
	rows, err := j.probeRows()
	if err != nil {
		return nil, err
	}
	c := comparison{job: j, rows: rows, parameters: j.executor.Info().Parameters}
	a := j.adapter()
	if a == nil {
		if err := errors.Join(j.exportFull(ctx, r.ModelDir), j.close()); err != nil {
			return nil, err
		}
		r.Quantized, err = c.quantized(ctx, export.Form{Dir: r.ModelDir})
		return r, err
	}
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
	served := export.Form{Dir: j.spec.ModelDir, Adapter: &engine.Adapter{Key: j.key, Dir: r.AdapterDir}}
	if r.Export, err = c.run(ctx, "merged", served, export.Form{Dir: r.ModelDir}); err != nil {
		return nil, err
	}
	r.Quantized, err = c.quantized(ctx, served)
	return r, err
}

// comparison compares forms of the result on the same rows.
type comparison struct {
	job        *job
	rows       [][]int32
	parameters int64 // of the model
}

// quantized measures a form in the quantisation in which it will be served.
func (c *comparison) quantized(ctx context.Context, f export.Form) (*engine.ExportCheck, error) {
	q := decoder.Quantization(c.job.spec.Quantization)
	if q == "" || q == decoder.None {
		return nil, nil
	}
	coarse := f
	coarse.Quantization = q
	return c.run(ctx, string(q), f, coarse)
}

// run measures the form b, which goes by a name, against a. Where that cannot be
// done the result stands, with a warning.
func (c *comparison) run(ctx context.Context, name string, a, b export.Form) (*engine.ExportCheck, error) {
	budget := c.job.budget()
	failed := func(why string) (*engine.ExportCheck, error) {
		return &engine.ExportCheck{Warning: fmt.Sprintf("the %s model was not compared with the trained one: %s", name, why)}, nil
	}
	// The larger form runs in float32, one after the other.
	if need := c.parameters * 5; budget > 0 && need > budget {
		return failed(fmt.Sprintf("this takes %d MiB, the job may use %d MiB", need>>20, budget>>20))
	}
	check, err := export.Compare(ctx, c.job.rt, a, b, c.rows, export.CompareOptions{TempDir: c.job.spec.WorkDir, Threads: c.job.plan.Threads})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return failed(err.Error())
	case check.Warning != "":
		check.Warning = fmt.Sprintf("the %s model: %s", name, check.Warning)
	}
	return check, nil
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
