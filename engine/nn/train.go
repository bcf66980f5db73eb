package nn

import (
	"math"

	"athanor/engine/graph"
)

// The training forms of the blocks. They are made of standard operators alone,
// whose gradients are known and which every execution provider computes, and
// work on rows: x is [T, ...] with T = B*S.

// LowRank is a change of a linear map: Scale * x transpose(A) transpose(B).
// (Hu and others 2021, arXiv:2106.09685.)
type LowRank struct {
	A, B  *graph.Value // [R, K] and [N, R]
	Scale float64
	// Keep is what the input is multiplied with first: 0 where dropout takes an
	// element away and 1/(1-p) elsewhere, [T, K]; nil without dropout.
	Keep *graph.Value
}

// TrainLinear is Linear over a weight in float32, with an adapter or without.
type TrainLinear struct {
	Weight *graph.Value // [N, K]
	Bias   *graph.Value // [N] or nil
	LoRA   *LowRank     // or nil
}

// Apply maps x [T, K] to [T, N].
func (l TrainLinear) Apply(g *graph.Graph, x *graph.Value) *graph.Value {
	y := g.Gemm(x, l.Weight, false, true) // [T, N]
	if l.LoRA != nil {
		y = g.Add(y, l.LoRA.apply(g.Scope("lora"), x))
	}
	if l.Bias != nil {
		y = g.Add(y, l.Bias)
	}
	return y
}

// apply maps x [T, K] to [T, N]. The factor goes where the fewest elements are.
func (l *LowRank) apply(g *graph.Graph, x *graph.Value) *graph.Value {
	if l.Keep != nil {
		x = g.Mul(x, l.Keep)
	}
	down := g.Gemm(x, l.A, false, true) // [T, R]
	down = g.Mul(down, g.Scalar(l.Scale, down.DType()))
	return g.Gemm(down, l.B, false, true) // [T, N]
}

// Train maps x [..., H] to [..., H], composed of standard operators.
func (n RMSNorm) Train(g *graph.Graph, x *graph.Value) *graph.Value {
	mean := g.ReduceMean(g.Mul(x, x), true, -1)                                           // [..., 1]
	inverse := g.Reciprocal(g.Sqrt(g.Add(mean, g.Scalar(float64(n.Epsilon), x.DType())))) // [..., 1]
	return g.Mul(g.Mul(x, inverse), n.Weight)
}

// Places says where the rows of a batch stand in their texts.
type Places struct {
	Cos, Sin *graph.Value // [B, S, 1, D/2], of the angle of each position
	// Mask is added to the scores, [B, 1, 1, S, S]: 0 where the position of the
	// fourth dimension sees that of the fifth, and a large negative number where
	// not. Each sees at least itself.
	Mask *graph.Value
}

// TrainAttention is causal self-attention without a cache.
type TrainAttention struct {
	Heads, KVHeads, HeadDim int // N, K, D
	Q, K, V, O              TrainLinear
	QNorm, KNorm            *RMSNorm // over each head before the rotation, [D]; nil for none
}

// Apply maps x [B*S, H] to [B*S, H]. The heads that share keys and values stand
// one below the other in the products, so that nothing is repeated.
func (a TrainAttention) Apply(g *graph.Graph, x *graph.Value, at Places) *graph.Value {
	batch, steps := at.Cos.Dim(0), at.Cos.Dim(1)
	kv, size, group := graph.Fixed(a.KVHeads), graph.Fixed(a.HeadDim), graph.Fixed(a.Heads/a.KVHeads)
	stacked := graph.Product(group, steps)

	q := a.heads(g.Scope("q"), a.Q, x, a.Heads, a.QNorm, at) // [B, S, N, D]
	q = g.Mul(q, g.Scalar(1/math.Sqrt(float64(a.HeadDim)), q.DType()))
	q = g.Reshape(g.Transpose(q, 0, 2, 1, 3), batch, kv, stacked, size)                 // [B, K, G*S, D]
	k := g.Transpose(a.heads(g.Scope("k"), a.K, x, a.KVHeads, a.KNorm, at), 0, 2, 3, 1) // [B, K, D, S]
	v := g.Reshape(a.V.Apply(g.Scope("v"), x), batch, steps, kv, size)                  // [B, S, K, D]
	v = g.Transpose(v, 0, 2, 1, 3)                                                      // [B, K, S, D]
	scores := g.Reshape(g.MatMul(q, k), batch, kv, group, steps, steps)                 // [B, K, G, S, S]
	share := g.Softmax(g.Add(scores, at.Mask))                                          // [B, K, G, S, S]
	y := g.MatMul(g.Reshape(share, batch, kv, stacked, steps), v)                       // [B, K, G*S, D]
	y = g.Transpose(g.Reshape(y, batch, graph.Fixed(a.Heads), steps, size), 0, 2, 1, 3) // [B, S, N, D]
	y = g.Reshape(y, graph.Product(batch, steps), graph.Fixed(a.Heads*a.HeadDim))       // [B*S, N*D]
	return a.O.Apply(g.Scope("o"), y)
}

// heads projects x [B*S, H] to n heads, normed and turned: [B, S, n, D].
func (a TrainAttention) heads(g *graph.Graph, l TrainLinear, x *graph.Value, n int, norm *RMSNorm, at Places) *graph.Value {
	y := g.Reshape(l.Apply(g, x), at.Cos.Dim(0), at.Cos.Dim(1), graph.Fixed(n), graph.Fixed(a.HeadDim))
	if norm != nil {
		y = norm.Train(g, y)
	}
	return Rotation{cos: at.Cos, sin: at.Sin}.turn(g, y)
}

// TrainMLP is GatedMLP for training.
type TrainMLP struct{ Gate, Up, Down TrainLinear }

// Apply maps x [T, H] to [T, H].
func (m TrainMLP) Apply(g *graph.Graph, x *graph.Value) *graph.Value {
	gate := m.Gate.Apply(g.Scope("gate"), x)             // [T, F]
	hidden := g.Mul(gate, g.Sigmoid(gate))               // [T, F]
	hidden = g.Mul(hidden, m.Up.Apply(g.Scope("up"), x)) // [T, F]
	return m.Down.Apply(g.Scope("down"), hidden)         // [T, H]
}
