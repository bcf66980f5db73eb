package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"

	"athanor/engine/llm"
	"athanor/engine/train/data"
	"athanor/gpu"
	"athanor/server/api"
	"athanor/server/finetunes"
	"athanor/store"
	"athanor/store/resource"
)

// newFineTunes makes the slice of fine-tuning with everything that it works with.
func (a *App) newFineTunes(ctx context.Context) (*finetunes.Service, error) {
	s := finetunes.New(finetunes.Config{
		Kit: a.kit, DB: a.db, Objects: a.objects, Models: a.models, Weights: &weights{a: a}, Trainer: a.trainer,
		Previewer: previewer{}, Hub: newModelHub(a.cfg, a.gate), Tracker: a.trackers, Links: a.links,
		Dir: filepath.Join(a.cfg.Data, "training"), Version: codeVersion(), Workers: a.cfg.TrainingJobs,
	})
	if err := s.Sweep(ctx); err != nil {
		return nil, fmt.Errorf("sweep the directories of training jobs: %w", err)
	}
	return s, nil
}

// codeVersion names this program by the state of its source.
func codeVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" && s.Value == "true" {
			version += " " + s.Key + "=" + s.Value
		}
	}
	return version
}

// weights implements finetunes.Weights on the files of models.
type weights struct {
	a *App

	mu     sync.Mutex // guards traits
	traits map[string]*finetunes.Traits
}

var _ finetunes.Weights = (*weights)(nil)

// Directory makes the files of m lie in the cache.
func (w *weights) Directory(ctx context.Context, m *resource.Model) (string, error) {
	return w.a.artifacts.directory(ctx, m)
}

// Describe drafts the record of a model directory.
func (w *weights) Describe(dir string) (*resource.Model, error) {
	return w.a.describe(dir, resource.QuantizationNone)
}

// Traits reads them once for each revision, from the small files of the model.
func (w *weights) Traits(ctx context.Context, m *resource.Model) (*finetunes.Traits, error) {
	w.mu.Lock()
	known := w.traits[m.Revision]
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := w.read(ctx, m)
	if err != nil {
		return nil, err
	}
	t := &finetunes.Traits{
		Modules: read.Modules, ContextLength: min(read.Context, m.ContextLength), Tools: read.Tools, Reasoning: read.Reasoning,
		Full: fullBytes(m.Parameters) <= hostMemory(ctx),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.traits == nil {
		w.traits = map[string]*finetunes.Traits{}
	}
	w.traits[m.Revision] = t
	return t, nil
}

// fullBytes is what training all weights takes at least: float32 values, gradients
// and two moments.
func fullBytes(parameters int64) int64 { return parameters * 16 }

// hostMemory is the memory of this machine in bytes.
func hostMemory(ctx context.Context) int64 {
	devices, err := gpu.NewHost().Devices(ctx)
	if err != nil || len(devices) == 0 {
		return 0
	}
	return devices[0].MemoryBytes
}

// traitFiles are the files of a model that Trainable reads.
var traitFiles = map[string]bool{"config.json": true, "generation_config.json": true, "chat_template.jinja": true, "tokenizer_config.json": true}

// read looks at the small files of a model without fetching its weights.
func (w *weights) read(ctx context.Context, m *resource.Model) (llm.Traits, error) {
	dir, err := os.MkdirTemp(w.a.cfg.Cache(), ".traits-")
	if err != nil {
		return llm.Traits{}, err
	}
	defer os.RemoveAll(dir)
	for _, f := range m.Files {
		if traitFiles[f.Path] {
			if err := w.a.artifacts.place(ctx, f, filepath.Join(dir, f.Path)); err != nil {
				return llm.Traits{}, fmt.Errorf("fetch %s of model %s: %w", f.Path, m.Name, err)
			}
		}
	}
	t, err := llm.Trainable(os.DirFS(dir))
	if err != nil {
		return t, fmt.Errorf("%w: %s: %w", finetunes.ErrUntrainable, m.Name, err)
	}
	return t, nil
}

// Publish stores directories by content for records that commit writes.
func (w *weights) Publish(ctx context.Context, dirs []string, commit func([]finetunes.Stored) error) error {
	select {
	case w.a.importing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.a.importing }()
	var stored []finetunes.Stored
	err := func() error {
		for _, dir := range dirs {
			files, err := listModel(os.DirFS(dir))
			if err == nil {
				err = w.a.artifacts.store(ctx, os.DirFS(dir), files, quiet)
			}
			if err != nil {
				return fmt.Errorf("store %s: %w", filepath.Base(dir), err)
			}
			stored = append(stored, finetunes.Stored{Files: files, Revision: resource.Revision(files)})
		}
		return commit(stored)
	}()
	if err != nil {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
		defer cancel()
		return errors.Join(err, w.a.takeBack(cleaning))
	}
	if err := w.a.artifacts.settle(); err != nil {
		w.a.kit.Log.Warn("the note about stored weights stays", "error", err)
	}
	return nil
}

// Release deletes objects that no record names any more.
func (w *weights) Release(ctx context.Context, files []resource.ModelFile) error {
	select {
	case w.a.importing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.a.importing }()
	return w.a.forget(ctx, files)
}

// namedByJobs adds the objects that fine-tuning jobs keep beside those of models.
func namedByJobs(tx *store.Tx, keys map[string]bool) error {
	for page := (store.Page{Limit: 1000}); ; {
		list, next, err := store.FineTunes.List(tx, "", page)
		if err != nil {
			return err
		}
		for _, f := range list {
			for _, file := range f.Files() {
				keys[file.ObjectKey] = true
			}
		}
		if page.After = next; next == "" {
			return nil
		}
	}
}

// previewer implements finetunes.Previewer with the engine's own tokenization.
type previewer struct{}

var _ finetunes.Previewer = previewer{}

// Preview tokenizes the first samples of a dataset.
func (previewer) Preview(ctx context.Context, modelDir string, r io.Reader, opt finetunes.PreviewOptions) (_ *api.FineTunePreview, err error) {
	src, done, err := data.Stream(opt.Type, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	inputs := data.InputsFalse
	if opt.TrainOnInputs {
		inputs = data.InputsTrue
	}
	p, err := data.Preview(ctx, os.DirFS(modelDir), data.EncodeOptions{
		Preference: opt.Preference, TrainOnInputs: inputs, MaxSeqLength: opt.MaxSeqLength,
	}, src, opt.Rows)
	if err != nil {
		return nil, err
	}
	out := &api.FineTunePreview{DatasetFormat: p.Format, MaxSeqLength: p.MaxSeqLength, Rows: []api.FineTunePreviewRow{}}
	for _, row := range p.Rows {
		for i, text := range row.Tokens { // a token may be half a character
			row.Tokens[i] = strings.ToValidUTF8(text, "\uFFFD")
		}
		out.Rows = append(out.Rows, api.FineTunePreviewRow{
			InputIDs: row.InputIDs, Tokens: row.Tokens, Labels: row.Labels, TrainedSpans: row.TrainedSpans, NumTokens: row.NumTokens,
			NumTrainedTokens: row.NumTrained, Truncated: row.Truncated,
		})
	}
	return out, nil
}
