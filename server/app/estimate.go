package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"athanor/engine/ort"
	"athanor/engine/train"
	"athanor/engine/train/data"
	"athanor/engine/train/estimate"
	"athanor/gpu"
	"athanor/server/api"
	"athanor/server/config"
	"athanor/server/finetunes"
	"athanor/server/rest"
	"athanor/store/resource"
)

// ErrNoRuntime says that nothing can be computed on this machine.
var ErrNoRuntime = errors.New("ONNX Runtime was not found")

// TrainingSpeed measures how many float32 operations a second a training job of this
// configuration can reach. It takes less than a second, and needs no server. The
// error wraps ErrNoRuntime where there is no library.
func TrainingSpeed(ctx context.Context, cfg config.Config) (speed float64, err error) {
	folder := cfg.Data
	if _, missing := existing(folder); missing {
		// A library that is unpacked for a look must not begin a data directory.
		if folder, err = os.MkdirTemp("", "athanor-speed-"); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	}
	library, err := ort.Locate(cfg.ONNXRuntime, folder)
	if errors.Is(err, ort.ErrNotFound) {
		return 0, fmt.Errorf("%w; athanor doctor says more", ErrNoRuntime)
	}
	if err != nil {
		return 0, fmt.Errorf("measure the speed of training: %w", err)
	}
	rt, err := ort.Open(ort.Options{Library: library})
	if err != nil {
		return 0, fmt.Errorf("measure the speed of training: %w", err)
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	return estimate.Speed(ctx, rt, trainingThreads(ctx, cfg))
}

// trainingThreads are the threads that one of several jobs gets, 0 = all.
func trainingThreads(ctx context.Context, cfg config.Config) int {
	devices, err := gpu.NewHost().Devices(ctx)
	if err != nil || len(devices) == 0 {
		return cfg.Threads
	}
	share := max(1, devices[0].Cores/max(1, cfg.TrainingJobs))
	if cfg.Threads > 0 {
		return min(share, cfg.Threads)
	}
	return share
}

// TrainingJob is a job that somebody may start.
type TrainingJob struct {
	Model      fs.FS // folder of the base model
	Train      *data.Counts
	Validation *data.Counts // nil without evaluations
	Packing    bool
	RowLength  int // tokens of a packed row
	BatchSize  int // rows or pairs of a pass, 0 = as the job chooses where memory allows it
	Epochs     int
	Evals      int
	Rank       int // of LoRA, 0 = all weights are trained
}

// TrainingWork is what a job will do.
type TrainingWork struct {
	BatchSize   int
	Epoch       data.Epoch
	Steps       int64
	TrainTokens int64 // of all epochs
	EvalTokens  int64 // of all evaluations
	job         estimate.Job
}

// Time is how long the steps and evaluations take at a speed.
func (w *TrainingWork) Time(speed float64) time.Duration {
	return time.Duration(w.job.Seconds(speed) * float64(time.Second))
}

// Work says what a job will do. Errors are those of the model's config.
func (j *TrainingJob) Work() (*TrainingWork, error) {
	model, err := estimate.Model(j.Model)
	if err != nil {
		return nil, err
	}
	o := data.Options{Packing: j.Packing, RowLength: j.RowLength, BatchRows: j.BatchSize, Shuffle: true}
	if o.BatchRows == 0 {
		o.BatchRows = 1
		o.BatchRows = train.LargestBatch(int(j.Train.Epoch(o).Rows), 1)
	}
	w := &TrainingWork{BatchSize: o.BatchRows, Epoch: j.Train.Epoch(o)}
	w.job = estimate.Job{
		Model: model, Rank: j.Rank, Train: w.Epoch, Epochs: j.Epochs, References: j.Train.Format == data.FormatPreference,
	}
	if j.Validation != nil && j.Evals > 0 {
		o.Shuffle = false
		w.job.Eval, w.job.Evals = j.Validation.Epoch(o), j.Evals
	}
	w.Steps = w.job.Steps()
	w.TrainTokens, w.EvalTokens = data.JobTokens(j.Train, j.Validation, j.Epochs, j.Evals)
	return w, nil
}

// Of a file so much is tokenized for an estimate, which takes about a second: the
// limits stop at a line that can be told before, and not after some time, so that the
// same file always gives the same answer.
const (
	estimateLines  = 20000
	estimateTokens = 1 << 20
)

// Tokens counts the tokens of a dataset of so many lines. A large one is taken to go
// on as it begins.
func (previewer) Tokens(ctx context.Context, modelDir string, r io.Reader, lines int64, opt finetunes.PreviewOptions) (tokens int64, err error) {
	model := os.DirFS(modelDir)
	e, err := data.NewEncoder(model, data.EncodeOptions{Preference: opt.Preference, MaxSeqLength: opt.MaxSeqLength})
	if err == nil && opt.MaxSeqLength == 0 {
		e, err = data.NewEncoder(model, data.EncodeOptions{Preference: opt.Preference, MaxSeqLength: e.Context()})
	}
	if err != nil {
		return 0, err
	}
	src, done, err := data.Stream(opt.Type, r)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	counts, read, err := data.CountFirst(ctx, e, src, "training", estimateLines, estimateTokens)
	if err != nil {
		return 0, err
	}
	if read >= lines {
		return counts.Tokens, nil
	}
	return int64(float64(counts.Tokens) / float64(read) * float64(lines)), nil
}

// modelDirectory answers GET /admin/models/directory.
func (a *App) modelDirectory(ctx context.Context, r *api.ModelDirectoryRequest) (*api.ModelDirectory, error) {
	m, err := a.models.Resolve(resource.ProjectID(rest.Caller(ctx).ProjectID), r.Model)
	if err != nil {
		return nil, err
	}
	if m.BaseID != "" {
		return nil, api.Invalid("model", "%s is an adapter; name its base model", r.Model)
	}
	dir, err := a.artifacts.directory(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("files of model %s: %w", m.Name, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &api.ModelDirectory{Model: m.Name, Directory: dir, ContextLength: m.ContextLength}, nil
}
