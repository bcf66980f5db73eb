package exec

import (
	"context"
	"fmt"
	"maps"

	"athanor/engine/compute"
	"athanor/engine/family/decoder"
	"athanor/engine/graph"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
)

// inRows names the positions that carry loss.
const inRows = "rows"

// buildWhole is forward, head and backward in one graph. The names of the
// inputs are canonical.
func (e *Executor) buildWhole(g *graph.Graph, dropout bool) {
	h, one := graph.Fixed(e.d.Hidden), graph.Fixed(1)
	at := e.places(g)
	embedded := g.Input(inX, tensor.F32, symT, h)
	rows := g.Input(inRows, tensor.I64, symC)
	targets := g.Input(inTargets, tensor.I64, symC, one)
	weights := g.Input(inWeights, tensor.F32, symC, one)
	x, list := embedded, []trained(nil)
	for i := range e.d.Layers {
		s := &source{e: e, layer: i, prefix: layerPrefix(i), dropout: dropout}
		x = e.d.TrainLayer(g.Scope(fmt.Sprintf("layer%d", i)), s, x, at)
		list = append(list, s.train...)
	}
	norm := e.base[decoder.NormName].declare(g, decoder.NormName)
	head := e.base[e.headName()].declare(g, decoder.HeadName)
	logits := e.d.TrainHead(g, g.Gather(x, rows), norm, head) // [C, V]
	logp, exps, sum := logProbability(g, logits, targets)
	g.Output(outLogp, logp)
	if e.full() {
		list = append(list, trained{decoder.NormName, norm}, trained{decoder.HeadName, head}, trained{inX, embedded})
	}
	backward(g, logits, logitsGradient(g, exps, sum, targets, weights), list)
}

// accumulateWhole is Accumulate in one run.
func (e *Executor) accumulateWhole(ctx context.Context, b *data.Batch) ([]float32, error) {
	logp := make([]float32, len(b.Tokens))
	rows := carrying(b)
	in, err := e.prepare(b)
	if err != nil || len(rows) == 0 {
		return logp, err
	}
	dropout := e.drops(b)
	prog, err := e.compiled(fmt.Sprintf("whole dropout=%v", dropout), func(g *graph.Graph) { e.buildWhole(g, dropout) })
	if err != nil {
		return nil, err
	}
	in, to := maps.Clone(in), e.newSink()
	if err := e.bindWhole(b, rows, in, to); err != nil {
		return nil, err
	}
	if err := prog.run(ctx, in, to.out); err != nil {
		return nil, fmt.Errorf("training pass: %w", err)
	}
	to.flush()
	for i, r := range rows {
		logp[r] = floats(to.out[outLogp])[i]
	}
	if e.full() {
		e.embedBackward(b.Tokens, to.out[outPrefix+inX])
	}
	return logp, nil
}

// bindWhole names all buffers of a run but those of prepare.
func (e *Executor) bindWhole(b *data.Batch, rows []int, in map[string]compute.Buffer, to *sink) error {
	for i := range e.d.Layers {
		for part, buffer := range e.bound[i] {
			in[layerPrefix(i)+part] = buffer
		}
		if e.drops(b) {
			if err := e.bindMasks(b, i, layerPrefix(i), in); err != nil {
				return err
			}
		}
		if err := to.wantLayer(i, layerPrefix(i)); err != nil {
			return err
		}
	}
	e.base[decoder.NormName].bind(decoder.NormName, in)
	e.base[e.headName()].bind(decoder.HeadName, in)
	n := len(rows)
	var err error
	get := func(name string, dtype tensor.DType, shape ...int) compute.Buffer {
		buffer, failed := e.pool.get("whole."+name, dtype, shape...)
		if failed != nil {
			err = failed
			return nil
		}
		return buffer
	}
	in[inRows], in[inTargets] = get(inRows, tensor.I64, n), get(inTargets, tensor.I64, n, 1)
	in[inWeights], to.out[outLogp] = get(inWeights, tensor.F32, n, 1), get(outLogp, tensor.F32, n, 1)
	if e.full() {
		to.out[outPrefix+inX] = get(outPrefix+inX, tensor.F32, len(b.Tokens), e.d.Hidden)
		if err == nil {
			err = to.want(decoder.NormName, decoder.NormName)
		}
		if err == nil {
			err = to.want(decoder.HeadName, e.headName())
		}
	}
	if err != nil {
		return err
	}
	at, targets := tensor.View[int64](in[inRows].Bytes()), tensor.View[int64](in[inTargets].Bytes())
	for i, r := range rows {
		at[i], targets[i], floats(in[inWeights])[i] = int64(r), int64(b.Targets[r]), b.Weights[r]
	}
	return nil
}
