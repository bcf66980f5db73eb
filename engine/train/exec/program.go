package exec

import (
	"context"
	"fmt"

	"athanor/engine/compute"
	"athanor/engine/grad"
	"athanor/engine/graph"
	"athanor/engine/onnx"
)

// outPrefix stands before the name of an input in the name of its gradient.
const outPrefix = "d."

// program is a compiled graph whose ports are bound by name.
type program struct {
	compute.Program
	in, out []compute.Port
}

// compiled returns the program of a key and builds it the first time.
func (e *Executor) compiled(key string, build func(g *graph.Graph)) (*program, error) {
	if p := e.programs[key]; p != nil {
		return p, nil
	}
	model, err := graph.Build(build)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", key, err)
	}
	return e.compile(key, model)
}

// compile prepares a model for runs and remembers it.
func (e *Executor) compile(key string, model *onnx.Model) (*program, error) {
	arrange(model.Graph)
	c, err := e.rt.Compile(model, compute.Options{Threads: e.cfg.Threads})
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", key, err)
	}
	p := &program{Program: c, in: c.Inputs(), out: c.Outputs()}
	e.programs[key] = p
	return p, nil
}

// run computes out from in, both by the names of the ports; an output without
// a buffer is not wanted.
func (p *program) run(ctx context.Context, in, out map[string]compute.Buffer) error {
	ins, outs := make([]compute.Buffer, len(p.in)), make([]compute.Buffer, len(p.out))
	for i, port := range p.in {
		if ins[i] = in[port.Name]; ins[i] == nil {
			return fmt.Errorf("no buffer for input %q", port.Name)
		}
	}
	for i, port := range p.out {
		outs[i] = out[port.Name]
	}
	return p.Run(ctx, ins, outs)
}

// backward adds the gradients with respect to what a graph trains, and to more
// inputs, as outputs. What they are outputs of depends on all of them.
func backward(g *graph.Graph, y, dy *graph.Value, list []trained) {
	wrt := make([]*graph.Value, len(list))
	for i, t := range list {
		wrt[i] = t.value
	}
	for i, d := range grad.Of(g, []*graph.Value{y}, []*graph.Value{dy}, wrt) {
		g.Output(outPrefix+list[i].name, d)
	}
}
