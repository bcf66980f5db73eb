package exec

import (
	"context"
	"fmt"

	"athanor/engine/compute"
	"athanor/engine/family/decoder"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
)

// Logprobs computes the logarithm of the probability of the target at each
// position that carries loss, 0 at the others: [B*S]. No dropout.
func (e *Executor) Logprobs(ctx context.Context, b *data.Batch) ([]float32, error) {
	p, err := e.forward(ctx, b, false, false)
	if err != nil {
		return nil, err
	}
	h := e.headOf(p)
	return h.logp, h.run(ctx, headForward)
}

func (e *Executor) headOf(p *pass) *headPass {
	return &headPass{e: e, rows: carrying(p.b), x: p.last, targets: p.b.Targets, weights: p.b.Weights, logp: make([]float32, len(p.b.Tokens))}
}

// Accumulate adds to every Grad the gradient of the sum of -w times the
// log-probability of the target, where w are the batch's weights or, when
// weigh is not nil, what it returns for the log-probabilities of this batch.
// Positions whose weight in the batch is 0 carry no loss in either case; their
// log-probability is given as 0. It returns the log-probabilities, [B*S].
// After an error the gradients are undefined until ZeroGrad.
func (e *Executor) Accumulate(ctx context.Context, b *data.Batch, weigh func(logp []float32) []float32) ([]float32, error) {
	if weigh == nil && e.way.whole {
		return e.accumulateWhole(ctx, b)
	}
	p, err := e.forward(ctx, b, e.drops(b), true)
	if err != nil {
		return nil, err
	}
	h := e.headOf(p)
	if h.dx, err = e.pool.get("head.rows", tensor.F32, b.Rows*b.Length, e.d.Hidden); err != nil {
		return nil, err
	}
	clear(h.dx.Bytes())
	if e.full() {
		err = h.all(ctx, weigh)
	} else {
		err = h.input(ctx, weigh)
	}
	if err != nil {
		return nil, err
	}
	dx, err := p.backward(ctx, h.dx)
	if err != nil {
		return nil, err
	}
	if e.full() {
		e.embedBackward(b.Tokens, dx)
	}
	return h.logp, nil
}

// all needs the weights before the gradients of the output projection.
func (h *headPass) all(ctx context.Context, weigh func([]float32) []float32) error {
	if weigh != nil {
		if err := h.run(ctx, headForward); err != nil {
			return err
		}
		if err := h.reweigh(weigh); err != nil {
			return err
		}
	}
	return h.run(ctx, headAll)
}

// input uses that the gradient of a row is its weight times that for a weight
// of one: one run is enough when the weights depend on its result.
func (h *headPass) input(ctx context.Context, weigh func([]float32) []float32) error {
	if weigh == nil {
		return h.run(ctx, headInput)
	}
	h.weights = nil
	if err := h.run(ctx, headInput); err != nil {
		return err
	}
	if err := h.reweigh(weigh); err != nil {
		return err
	}
	width := h.e.d.Hidden
	for _, r := range h.rows {
		row := floats(h.dx)[r*width : (r+1)*width]
		for i := range row {
			row[i] *= h.weights[r]
		}
	}
	return nil
}

func (h *headPass) reweigh(weigh func([]float32) []float32) error {
	h.weights = weigh(h.logp)
	if len(h.weights) != len(h.logp) {
		return fmt.Errorf("%d weights for %d positions", len(h.weights), len(h.logp))
	}
	return nil
}

// embedBackward adds the gradient of each embedded token to its row.
func (e *Executor) embedBackward(tokens []int32, dx compute.Buffer) {
	width := e.d.Hidden
	sum, x := floats(e.params[e.byName[decoder.EmbedName]].Grad), floats(dx)
	e.clean[decoder.EmbedName] = false
	for i, t := range tokens {
		row, from := sum[int(t)*width:(int(t)+1)*width], x[i*width:(i+1)*width]
		for j := range row {
			row[j] += from[j]
		}
	}
}
