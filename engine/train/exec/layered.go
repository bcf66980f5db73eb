package exec

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"athanor/engine/compute"
	"athanor/engine/graph"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
)

// pass is one batch on its way through the layers.
type pass struct {
	e       *Executor
	b       *data.Batch
	shared  map[string]compute.Buffer // inputs of all layers
	dropout bool
	acts    []compute.Buffer            // what enters each layer, and what leaves the last; when kept
	last    compute.Buffer              // what leaves the last layer, [T, H]
	kept    []map[string]compute.Buffer // what layers hand on to their backward runs; nil for those that are computed again
}

// layerProgram is the program of a layer, forward or backward.
func (e *Executor) layerProgram(layer int, k layerKind, dropout bool) (*program, error) {
	key := layerKey(e, layer, k, dropout)
	if p := e.programs[key]; p != nil {
		return p, nil
	}
	model, err := graph.Build(func(g *graph.Graph) { e.buildLayer(g, layer, k, dropout) })
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", key, err)
	}
	if k != layerForward { // only the forward program is asked for y
		model.Graph.Outputs = slices.DeleteFunc(model.Graph.Outputs, func(v onnx.ValueInfo) bool { return v.Name == outY })
	}
	return e.compile(key, model)
}

func layerKey(e *Executor, layer int, k layerKind, dropout bool) string {
	return fmt.Sprintf("layer %s dropout=%v %s", k, dropout, e.signature(layer))
}

// layerKind says what a run of a layer is for.
type layerKind string

const (
	layerForward layerKind = "forward"
	layerBack    layerKind = "back"
	layerEnd     layerKind = "end" // back, without the gradient of the input
)

// buildLayer adds a layer and, if wanted, its gradients. It returns the number
// of nodes of the layer itself.
func (e *Executor) buildLayer(g *graph.Graph, layer int, k layerKind, dropout bool) int {
	h := graph.Fixed(e.d.Hidden)
	at := e.places(g)
	x := g.Input(inX, tensor.F32, symT, h)
	s := &source{e: e, layer: layer, dropout: dropout}
	y := e.d.TrainLayer(g, s, x, at).Dims(symT, h)
	g.Output(outY, y)
	n := len(g.Nodes())
	if k == layerForward {
		return n
	}
	if k == layerBack {
		s.train = append(s.train, trained{inX, x})
	}
	backward(g, y, g.Input(inDY, tensor.F32, symT, h), s.train)
	return n
}

// Ports of the layers' programs.
const (
	outY = "y"
	inDY = "dy"
)

// forward runs all layers over a batch. For a backward pass it keeps what
// enters the layers, and the products of the last few of them.
func (e *Executor) forward(ctx context.Context, b *data.Batch, dropout, keep bool) (*pass, error) {
	shared, err := e.prepare(b)
	if err != nil {
		return nil, err
	}
	p := &pass{e: e, b: b, shared: shared, dropout: dropout, last: shared[inX], kept: make([]map[string]compute.Buffer, e.d.Layers)}
	first := e.d.Layers // that is not computed again
	if keep {
		p.acts = append(p.acts, p.last)
		first -= e.way.keep
	}
	first = max(first, e.lowestTrained())
	for i := range e.d.Layers {
		name := fmt.Sprintf("act.%d", i%2)
		if keep {
			name = fmt.Sprintf("act.%d", i)
		}
		y, err := e.pool.get(name, tensor.F32, b.Rows*b.Length, e.d.Hidden)
		if err != nil {
			return nil, err
		}
		in, err := p.inputs(i)
		if err != nil {
			return nil, err
		}
		in[inX] = p.last
		if err := p.layer(ctx, i, i >= first, in, y); err != nil {
			return nil, fmt.Errorf("layer %d forward: %w", i, err)
		}
		p.last = y
		if keep {
			p.acts = append(p.acts, y)
		}
	}
	return p, nil
}

// layer runs one layer forward.
func (p *pass) layer(ctx context.Context, i int, keep bool, in map[string]compute.Buffer, y compute.Buffer) error {
	e, out := p.e, map[string]compute.Buffer{outY: y}
	if !keep {
		prog, err := e.layerProgram(i, layerForward, p.dropout)
		if err != nil {
			return err
		}
		return prog.run(ctx, in, out)
	}
	d, err := e.dividedLayer(i, e.backKind(i), p.dropout)
	if err != nil {
		return err
	}
	p.kept[i] = map[string]compute.Buffer{}
	sizes := map[string]int{"B": p.b.Rows, "S": p.b.Length}
	for _, k := range d.kept {
		shape := make([]int, len(k.shape))
		for j, dim := range k.shape {
			shape[j] = int(sizeOfDims(dim).times(sizes))
		}
		if out[k.name], err = e.pool.get(fmt.Sprintf("keep.%d.%s", i, k.name), tensor.F32, shape...); err != nil {
			return err
		}
		p.kept[i][k.name] = out[k.name]
	}
	return d.forward.run(ctx, in, out)
}

// backKind is what the backward run of a layer is for.
func (e *Executor) backKind(layer int) layerKind {
	if layer > e.lowestTrained() || e.full() {
		return layerBack
	}
	return layerEnd
}

// backProgram is the program of a backward run; it adds to in what was kept.
func (p *pass) backProgram(layer int, in map[string]compute.Buffer) (*program, error) {
	kind := p.e.backKind(layer)
	if p.kept[layer] == nil {
		return p.e.layerProgram(layer, kind, p.dropout)
	}
	maps.Copy(in, p.kept[layer])
	d, err := p.e.dividedLayer(layer, kind, p.dropout)
	if err != nil {
		return nil, err
	}
	return d.back, nil
}

// inputs are the ports of a layer but for x and dy.
func (p *pass) inputs(layer int) (map[string]compute.Buffer, error) {
	in := maps.Clone(p.shared)
	maps.Copy(in, p.e.bound[layer])
	if p.dropout {
		if err := p.e.bindMasks(p.b, layer, "", in); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// backward takes the gradient of what left the last layer down to the lowest
// layer that is trained, adding up the gradients of the parameters. It returns
// the gradient of the embedded tokens, where that is wanted.
func (p *pass) backward(ctx context.Context, dy compute.Buffer) (compute.Buffer, error) {
	e := p.e
	lowest := e.lowestTrained()
	for i := e.d.Layers - 1; i >= lowest; i-- {
		in, err := p.inputs(i)
		if err != nil {
			return nil, err
		}
		in[inX], in[inDY] = p.acts[i], dy
		to := e.newSink()
		if err := to.wantLayer(i, ""); err != nil {
			return nil, err
		}
		dx, err := e.pool.get(fmt.Sprintf("dx.%d", i%2), tensor.F32, p.b.Rows*p.b.Length, e.d.Hidden)
		if err != nil {
			return nil, err
		}
		to.out[outPrefix+inX] = dx
		prog, err := p.backProgram(i, in)
		if err != nil {
			return nil, err
		}
		if err := prog.run(ctx, in, to.out); err != nil {
			return nil, fmt.Errorf("layer %d backward: %w", i, err)
		}
		to.flush()
		dy = dx
	}
	return dy, nil
}

// wantLayer asks for the gradients of all parameters of a layer.
func (s *sink) wantLayer(layer int, prefix string) error {
	p := layerPrefix(layer)
	for _, key := range s.e.keys[layer] {
		if err := s.want(prefix+strings.TrimPrefix(key, p), key); err != nil {
			return err
		}
	}
	return nil
}

// lowestTrained is the first layer with a parameter.
func (e *Executor) lowestTrained() int {
	for i := range e.d.Layers {
		if len(e.keys[i]) > 0 {
			return i
		}
	}
	return e.d.Layers
}
