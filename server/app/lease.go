package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"athanor/engine"
	"athanor/engine/host"
	"athanor/engine/llm"
	"athanor/engine/worker"
	"athanor/server/api"
	"athanor/server/rest"
	"athanor/store/resource"
)

// Generator implements chat.Models: it resolves the name as the caller sees it
// and borrows the model's worker.
func (a *App) Generator(ctx context.Context, name string) (engine.Generator, func(), error) {
	m, err := a.models.Resolve(resource.ProjectID(rest.Caller(ctx).ProjectID), name)
	if err != nil {
		return nil, nil, err
	}
	if a.mock != nil {
		return a.mock, func() {}, nil
	}
	lease, err := a.lease(ctx, m)
	if err != nil {
		return nil, nil, fmt.Errorf("load model %s: %w", name, err)
	}
	return lease.Generator(), lease.Release, nil
}

// lease borrows the worker of m, which is started when it does not run.
func (a *App) lease(ctx context.Context, m *resource.Model) (*host.Lease, error) {
	if a.noLibrary != nil {
		return nil, cause(api.New(http.StatusServiceUnavailable, api.TypeOverloaded, "no_runtime",
			"this server cannot load models: ONNX Runtime was not found; athanor doctor says more"), a.noLibrary)
	}
	dir, err := a.artifacts.directory(ctx, m)
	if err != nil {
		return nil, err
	}
	plan, err := a.plans.of(m.Revision, func() (llm.Description, error) { return llm.Inspect(dir, int64(a.cfg.KVMemory)) })
	if err != nil {
		return nil, fmt.Errorf("inspect the files: %w", err)
	}
	return a.host.Acquire(ctx, host.Spec{
		Key: string(m.ID),
		Spec: worker.Spec{
			Name: m.Name, Dir: dir, Quantization: string(m.Quantization), CacheDir: a.artifacts.compiledDir(m.Revision),
			Threads: a.cfg.Threads, Context: plan.Context, Slots: plan.Slots,
			MemoryBytes: weightBytes(m) + plan.KVBytes,
		},
		MemoryLimit: int64(a.cfg.Memory),
	})
}

// plans remembers what the files of each revision say: to read a large
// tokenizer takes longer than a second, and every request asks. The zero value
// is ready. It has an entry for each model that was ever asked for.
type plans struct {
	mu sync.Mutex // guards the fields below
	by map[string]llm.Description
}

// of gives the description of a revision; what inspect finds is kept unless it
// fails. Callers that come at the same time inspect at the same time.
func (p *plans) of(revision string, inspect func() (llm.Description, error)) (llm.Description, error) {
	p.mu.Lock()
	d, ok := p.by[revision]
	p.mu.Unlock()
	if ok {
		return d, nil
	}
	d, err := inspect()
	if err != nil {
		return d, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[string]llm.Description{}
	}
	p.by[revision] = d
	return d, nil
}

// weightBytes estimates the memory of the weights as they are served: block
// formats keep one float32 scale per 32 values.
func weightBytes(m *resource.Model) int64 {
	switch m.Quantization {
	case resource.QuantizationInt4:
		return m.Parameters * 5 / 8
	case resource.QuantizationInt8:
		return m.Parameters * 9 / 8
	}
	return m.Parameters * 4
}
