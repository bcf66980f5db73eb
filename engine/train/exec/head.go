package exec

import (
	"context"
	"fmt"

	"athanor/engine/compute"
	"athanor/engine/family/decoder"
	"athanor/engine/graph"
	"athanor/engine/tensor"
)

// Ports of the head.
const (
	inTargets = "targets"
	inWeights = "weights"
	outLogp   = "logp"
)

// headBytes bounds the logits of a chunk; there are never fewer positions than
// minChunk or more than maxChunk.
const (
	headBytes = 32 << 20
	minChunk  = 128
	maxChunk  = 512
)

// chunk is the number of positions that the head sees at once.
func (e *Executor) chunk() int {
	const even = 64 // products like whole blocks of rows
	return min(max(headBytes/4/e.d.Vocabulary/even*even, minChunk), maxChunk)
}

// headKind says what a run of the head is for.
type headKind string

const (
	headForward headKind = "forward" // log-probabilities alone
	headInput   headKind = "input"   // and the gradient of the input
	headAll     headKind = "all"     // and those of the norm and the output projection
)

// headName is the canonical name of the output projection, which may be the
// embedding.
func (e *Executor) headName() string {
	if e.base[decoder.HeadName] == nil {
		return decoder.EmbedName
	}
	return decoder.HeadName
}

// buildHead maps x [C, H] to log-probabilities of targets [C, 1] and, for the
// sum of weights [C, 1] times the negative of those, to the gradients.
func (e *Executor) buildHead(g *graph.Graph, kind headKind) {
	x := g.Input(inX, tensor.F32, symC, graph.Fixed(e.d.Hidden))
	targets := g.Input(inTargets, tensor.I64, symC, graph.Fixed(1))
	norm := e.base[decoder.NormName].declare(g, decoder.NormName)
	head := e.base[e.headName()].declare(g, decoder.HeadName)
	logits := e.d.TrainHead(g, x, norm, head) // [C, V]
	logp, exps, sum := logProbability(g, logits, targets)
	g.Output(outLogp, logp)
	if kind == headForward {
		return
	}
	w := g.Input(inWeights, tensor.F32, symC, graph.Fixed(1))
	list := []trained{{inX, x}}
	if kind == headAll {
		list = append(list, trained{decoder.NormName, norm}, trained{decoder.HeadName, head})
	}
	backward(g, logits, logitsGradient(g, exps, sum, targets, w), list)
}

// logProbability gives the logarithm of the softmax of logits [C, V] at the
// targets [C, 1], the exponentials of the logits less their largest, and the
// sums of those [C, 1].
func logProbability(g *graph.Graph, logits, targets *graph.Value) (logp, exps, sum *graph.Value) {
	shifted := g.Sub(logits, g.ReduceMax(logits, true, -1))         // [C, V]
	exps = g.Exp(shifted)                                           // [C, V]
	sum = g.ReduceSum(exps, true, -1)                               // [C, 1]
	logp = g.Sub(g.GatherElements(shifted, targets, 1), g.Log(sum)) // [C, 1]
	return logp, exps, sum
}

// logitsGradient is that of the sum of w times the negative log-probability:
// w * (softmax - 1 at the target). It is written out because the softmax is
// there already.
func logitsGradient(g *graph.Graph, exps, sum, targets, w *graph.Value) *graph.Value {
	d := g.Mul(exps, g.Div(w, sum))                   // [C, V]
	return g.ScatterElements(d, targets, g.Neg(w), 1) // [C, V]
}

// headPass is the head over the positions that carry loss.
type headPass struct {
	e       *Executor
	rows    []int          // of x
	x, dx   compute.Buffer // [T, H]; dx is nil, or gets the gradient in those rows
	targets []int32
	weights []float32 // of all positions, for the gradient; nil = ones
	logp    []float32 // [T]
}

// run goes through the positions chunk by chunk.
func (h *headPass) run(ctx context.Context, kind headKind) error {
	e := h.e
	prog, err := e.compiled("head "+string(kind), func(g *graph.Graph) { e.buildHead(g, kind) })
	if err != nil {
		return err
	}
	size := e.chunk()
	for from := 0; from < len(h.rows); from += size {
		if err := h.chunk(ctx, prog, kind, h.rows[from:min(from+size, len(h.rows))]); err != nil {
			return fmt.Errorf("head: %w", err)
		}
	}
	return nil
}

func (h *headPass) chunk(ctx context.Context, prog *program, kind headKind, rows []int) error {
	e, n, width := h.e, len(rows), h.e.d.Hidden
	buffers := map[string]compute.Buffer{}
	for _, b := range []struct {
		name  string
		dtype tensor.DType
		cols  int
	}{{inX, tensor.F32, width}, {inTargets, tensor.I64, 1}, {inWeights, tensor.F32, 1}, {outLogp, tensor.F32, 1}, {outPrefix + inX, tensor.F32, width}} {
		buffer, err := e.pool.get("head."+b.name, b.dtype, n, b.cols)
		if err != nil {
			return err
		}
		buffers[b.name] = buffer
	}
	x, all := floats(buffers[inX]), floats(h.x)
	targets, weights := tensor.View[int64](buffers[inTargets].Bytes()), floats(buffers[inWeights])
	for i, r := range rows {
		copy(x[i*width:(i+1)*width], all[r*width:])
		targets[i] = int64(h.targets[r])
		weights[i] = 1
		if h.weights != nil {
			weights[i] = h.weights[r]
		}
	}
	e.base[decoder.NormName].bind(decoder.NormName, buffers)
	e.base[e.headName()].bind(decoder.HeadName, buffers)
	to := e.newSink()
	to.out[outLogp] = buffers[outLogp]
	if kind != headForward {
		to.out[outPrefix+inX] = buffers[outPrefix+inX]
	}
	if kind == headAll {
		if err := to.want(decoder.NormName, decoder.NormName); err != nil {
			return err
		}
		if err := to.want(decoder.HeadName, e.headName()); err != nil {
			return err
		}
	}
	if err := prog.run(ctx, buffers, to.out); err != nil {
		return err
	}
	to.flush()
	logp, dx := floats(buffers[outLogp]), floats(buffers[outPrefix+inX])
	for i, r := range rows {
		h.logp[r] = logp[i]
		if h.dx != nil {
			copy(floats(h.dx)[r*width:(r+1)*width], dx[i*width:])
		}
	}
	return nil
}
