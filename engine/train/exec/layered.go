package exec

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"athanor/engine/compute"
	"athanor/engine/graph"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
)

// pass is one batch on its way through the layers.
type pass struct {
	e       *Executor
	b       *data.Batch
	shared  map[string]compute.Buffer // inputs of all layers
	dropout bool
	acts    []compute.Buffer // what enters each layer, and what leaves the last; when kept
	last    compute.Buffer   // what leaves the last layer, [T, H]
}

// layerProgram is the program of a layer, forward or backward.
func (e *Executor) layerProgram(layer int, k layerKind, dropout bool) (*program, error) {
	key := fmt.Sprintf("layer %s dropout=%v %s", k, dropout, e.signature(layer))
	return e.compiled(key, func(g *graph.Graph) { e.buildLayer(g, layer, k, dropout) })
}

// layerKind says what a run of a layer is for.
type layerKind string

const (
	layerForward layerKind = "forward"
	layerBack    layerKind = "back"
	layerEnd     layerKind = "end" // back, without the gradient of the input
)

func (e *Executor) buildLayer(g *graph.Graph, layer int, k layerKind, dropout bool) {
	h := graph.Fixed(e.d.Hidden)
	at := e.places(g)
	x := g.Input(inX, tensor.F32, symT, h)
	s := &source{e: e, layer: layer, dropout: dropout}
	y := e.d.TrainLayer(g, s, x, at).Dims(symT, h)
	switch k {
	case layerForward:
		g.Output(outY, y)
		return
	case layerBack:
		s.train = append(s.train, trained{inX, x})
	}
	backward(g, y, g.Input(inDY, tensor.F32, symT, h), s.train)
}

// Ports of the layers' programs.
const (
	outY = "y"
	inDY = "dy"
)

// forward runs all layers over a batch.
func (e *Executor) forward(ctx context.Context, b *data.Batch, dropout, keep bool) (*pass, error) {
	shared, err := e.prepare(b)
	if err != nil {
		return nil, err
	}
	p := &pass{e: e, b: b, shared: shared, dropout: dropout, last: shared[inX]}
	if keep {
		p.acts = append(p.acts, p.last)
	}
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
		prog, err := e.layerProgram(i, layerForward, dropout)
		if err != nil {
			return nil, err
		}
		if err := prog.run(ctx, in, map[string]compute.Buffer{outY: y}); err != nil {
			return nil, fmt.Errorf("layer %d forward: %w", i, err)
		}
		p.last = y
		if keep {
			p.acts = append(p.acts, y)
		}
	}
	return p, nil
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
		kind := layerEnd
		if i > lowest || e.full() {
			kind, to.out[outPrefix+inX] = layerBack, dx
		}
		prog, err := e.layerProgram(i, kind, p.dropout)
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
