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
// and borrows the model's worker. An adapter is applied on the worker of its
// base, of which there is one.
func (a *App) Generator(ctx context.Context, name string) (engine.Generator, func(), error) {
	m, err := a.models.Resolve(resource.ProjectID(rest.Caller(ctx).ProjectID), name)
	if err != nil {
		return nil, nil, err
	}
	if a.mock != nil {
		return a.mock, func() {}, nil
	}
	g, release, err := a.borrow(ctx, m)
	if err != nil {
		return nil, nil, fmt.Errorf("load model %s: %w", name, err)
	}
	return g, release, nil
}

// adapted gives every request an adapter.
type adapted struct {
	engine.Generator
	adapter *engine.Adapter
}

func (g adapted) Generate(ctx context.Context, req *engine.GenerateRequest, emit func(*engine.Event) error) error {
	with := *req
	with.Adapter = g.adapter
	return g.Generator.Generate(ctx, &with, emit)
}

// borrow leases the worker of m or of its base, which is started when it does
// not run; m need not be registered yet. The caller calls release.
func (a *App) borrow(ctx context.Context, m *resource.Model) (g engine.Generator, release func(), err error) {
	base, err := a.models.Base(m)
	if err != nil {
		return nil, nil, err
	}
	spec, err := a.workerSpec(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	if m == base {
		lease, err := a.host.Acquire(ctx, spec)
		if err != nil {
			return nil, nil, err
		}
		return lease.Generator(), lease.Release, nil
	}
	dir, err := a.artifacts.directory(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	lease, err := a.acquireAdapted(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	return adapted{lease.Generator(), &engine.Adapter{Key: m.Revision, Dir: dir}}, lease.Release, nil
}

// acquireAdapted leases a worker that takes adapters. One that was started
// before its model had any is replaced: its requests end, then the new one
// starts, so that the weights are never in memory twice.
func (a *App) acquireAdapted(ctx context.Context, spec host.Spec) (*host.Lease, error) {
	spec.Adapters = true
	lease, err := a.host.Acquire(ctx, spec)
	if err != nil || lease.Generator().Model().Adapters {
		return lease, err
	}
	lease.Release()
	// One at a time, and each looks again: the new worker must not be replaced.
	select {
	case a.replacing <- struct{}{}:
		defer func() { <-a.replacing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	lease, err = a.host.Acquire(ctx, spec)
	if err != nil || lease.Generator().Model().Adapters {
		return lease, err
	}
	lease.Release()
	if err := a.host.Evict(ctx, spec.Key); err != nil {
		return nil, err
	}
	return a.host.Acquire(ctx, spec)
}

// workerSpec is the worker of m, which is no adapter.
func (a *App) workerSpec(ctx context.Context, m *resource.Model) (host.Spec, error) {
	if a.noLibrary != nil {
		return host.Spec{}, cause(api.New(http.StatusServiceUnavailable, api.TypeOverloaded, "no_runtime",
			"this server cannot load models: ONNX Runtime was not found; athanor doctor says more"), a.noLibrary)
	}
	dir, err := a.artifacts.directory(ctx, m)
	if err != nil {
		return host.Spec{}, err
	}
	plan, err := a.plans.of(m.Revision, func() (llm.Description, error) { return llm.Inspect(dir, int64(a.cfg.KVMemory)) })
	if err != nil {
		return host.Spec{}, fmt.Errorf("inspect the files: %w", err)
	}
	adapters, largest, err := a.models.Adapters(m)
	if err != nil {
		return host.Spec{}, err
	}
	memory := weightBytes(m) + plan.KVBytes
	if adapters > 0 {
		memory += llm.AdapterBytes(adapters, largest, plan.Slots)
	}
	return host.Spec{
		Key: string(m.ID),
		Spec: worker.Spec{
			Name: m.Name, Dir: dir, Quantization: string(m.Quantization), CacheDir: a.artifacts.compiledDir(m.Revision),
			Threads: a.cfg.Threads, Context: plan.Context, Slots: plan.Slots, Adapters: adapters > 0,
			MemoryBytes: memory,
		},
		MemoryLimit: int64(a.cfg.Memory),
	}, nil
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
