package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"athanor/engine"
	"athanor/engine/demo"
	"athanor/engine/llm"
	"athanor/engine/worker"
	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store/resource"
)

// importModel answers POST /admin/models/import: check, copy, try one token,
// register. A failure leaves nothing behind.
func (a *App) importModel(ctx context.Context, r *api.ImportModelRequest, events *rest.Events) (*api.Model, error) {
	m, err := a.inspect(r)
	if err != nil {
		return nil, err
	}
	tell := func(phase string, done, total int64) {
		_ = events.Send(api.ImportEvent{Phase: phase, Done: done, Total: total}) // a lost listener ends ctx
	}
	if err := a.install(ctx, m, os.DirFS(r.Path), tell, a.probe); err != nil {
		return nil, err
	}
	wire, err := a.models.Get(ctx, &api.GetModelRequest{ID: m.Name})
	if err != nil {
		return nil, err
	}
	return nil, events.Send(api.ImportEvent{Model: wire})
}

// inspect checks a directory without reading its weights and drafts the record.
func (a *App) inspect(r *api.ImportModelRequest) (*resource.Model, error) {
	if err := resource.ValidateModelName(r.Name); err != nil {
		return nil, api.Invalid("name", "%s", err)
	}
	if info, err := os.Stat(r.Path); err != nil || !info.IsDir() {
		return nil, api.Invalid("path", "%s is not a directory that the server can read", r.Path)
	}
	if _, err := a.models.Resolve("", r.Name); err == nil {
		return nil, api.Conflict("a model named %s exists already", r.Name).WithParam("name")
	}
	m, err := a.describe(r.Path, resource.Quantization(r.Quantization))
	if err != nil {
		return nil, api.Invalid("path", "%s: %s", r.Path, err).WithCode("invalid_model")
	}
	m.Name, m.SourceKind, m.Source = r.Name, "directory", r.Path
	return m, nil
}

// describe drafts the record of a model directory. Its errors are for the
// person who brought the files.
func (a *App) describe(dir string, q resource.Quantization) (*resource.Model, error) {
	files, err := listModel(os.DirFS(dir))
	if err != nil {
		return nil, err
	}
	d, err := llm.Inspect(dir, int64(a.cfg.KVMemory))
	if err != nil {
		return nil, err
	}
	kind := resource.ModelLanguage
	if d.Chat {
		kind = resource.ModelChat
	}
	return &resource.Model{
		Type: kind, Architecture: d.Architecture, Quantization: q, ContextLength: d.Context,
		Parameters: d.Parameters, Files: files,
	}, nil
}

// install stores the files of m, tries it with probe (nil for none), and
// registers it, in place of the model of the same id when it has one. One at a time: a failed import takes back what it added, and no
// other may have begun to count on it.
func (a *App) install(ctx context.Context, m *resource.Model, fsys fs.FS, tell func(string, int64, int64), probe func(context.Context, *resource.Model, func(string, int64, int64)) error) error {
	select {
	case a.importing <- struct{}{}:
	default:
		tell("waiting for another import", 0, 0)
		select {
		case a.importing <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-a.importing }()
	register := a.models.Replace
	if m.ID == "" {
		register = a.models.Register
		m.ID = resource.ModelID(a.kit.NewID("model"))
		m.EndpointID = resource.EndpointID(a.kit.NewID("endpoint"))
		m.CreatedAt = a.kit.Now()
	}
	err := a.artifacts.store(ctx, fsys, m.Files, tell)
	if err == nil {
		m.Revision = revision(m.Files)
		if probe != nil {
			err = probe(ctx, m, tell)
		}
	}
	if err == nil {
		err = register(ctx, m)
	}
	if err != nil {
		return errors.Join(err, a.withdraw(m))
	}
	if err := a.artifacts.settle(); err != nil {
		a.kit.Log.Warn("the note about an import that succeeded stays", "error", err)
	}
	return nil
}

// probe loads m in a worker and generates one token.
func (a *App) probe(ctx context.Context, m *resource.Model, tell func(string, int64, int64)) error {
	tell("converting and loading in a worker", 0, 0)
	g, release, err := a.borrow(ctx, m)
	if err != nil {
		if failed := (*worker.LoadError)(nil); errors.As(err, &failed) {
			err = errors.New(failed.Message)
		}
		return api.Invalid("path", "the model does not load: %s", err).WithCode("invalid_model")
	}
	defer release()
	tell("generating one token", 0, 0)
	greedy := 0.0
	req := &engine.GenerateRequest{Prompt: "a", MaxTokens: 1, Sampling: engine.Sampling{Temperature: &greedy}}
	tokens := 0
	err = g.Generate(ctx, req, func(ev *engine.Event) error {
		if ev.Usage != nil {
			tokens = ev.Usage.CompletionTokens
		}
		return nil
	})
	if err == nil && tokens == 0 {
		err = errors.New("no token came")
	}
	if err != nil {
		return api.Invalid("path", "the model loads but does not generate: %s", err).WithCode("invalid_model")
	}
	return nil
}

// ensureDemo registers the embedded model on a fresh data directory, and
// replaces the one that an older binary brought.
func (a *App) ensureDemo(ctx context.Context) error {
	old, err := a.models.Resolve("", demo.Name)
	if err == nil && !old.Builtin {
		return nil // the name is somebody's own
	}
	if err == nil {
		files, err := listModel(demo.FS())
		if err != nil {
			return fmt.Errorf("embedded model: %w", err)
		}
		if err := hashFiles(ctx, demo.FS(), files, quiet); err != nil {
			return fmt.Errorf("embedded model: %w", err)
		}
		if revision(files) == old.Revision {
			return nil
		}
	}
	dir, err := os.MkdirTemp(a.cfg.Cache(), ".demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, demo.FS()); err != nil {
		return fmt.Errorf("unpack the embedded model: %w", err)
	}
	m, err := a.describe(dir, resource.QuantizationNone)
	if err != nil {
		return fmt.Errorf("embedded model: %w", err)
	}
	m.Name, m.DisplayName, m.SourceKind, m.Builtin, m.License = demo.Name, "Athanor demo", "builtin", true, "apache-2.0"
	if old == nil {
		return a.install(ctx, m, os.DirFS(dir), quiet, nil)
	}
	m.ID, m.EndpointID, m.CreatedAt = old.ID, old.EndpointID, old.CreatedAt
	if err := a.install(ctx, m, os.DirFS(dir), quiet, nil); err != nil {
		return err
	}
	return a.forget(ctx, old.Files)
}

// quiet is progress that nobody watches.
func quiet(string, int64, int64) {}

// forget removes the objects of files that no model names any more.
func (a *App) forget(ctx context.Context, files []resource.ModelFile) error {
	keys, _, err := a.named()
	if err != nil {
		return err
	}
	for _, f := range files {
		if !keys[f.ObjectKey] {
			err = errors.Join(err, a.objects.Delete(ctx, f.ObjectKey))
		}
	}
	return err
}
