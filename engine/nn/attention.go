package nn

import (
	"math"

	"athanor/engine/graph"
)

// Attention is causal self-attention of N query heads over K key/value heads
// with a cache.
type Attention struct {
	Heads, KVHeads, HeadDim int      // N, K, D
	Q                       Linear   // [N*D, H]
	K, V                    Linear   // [K*D, H]
	O                       Linear   // [H, N*D]
	QNorm, KNorm            *RMSNorm // over each head before the rotation, [D]; nil for none
}

// Cache is the memory of one layer and where the step lies in it.
type Cache struct {
	Key, Value *graph.Value // [B, K, M, D]
	Last       *graph.Value // int32 [B], total length of each row minus one
	Total      *graph.Value // int32 [1], the longest total length
}

// Apply maps x [B, S, H] to [B, S, H] and returns the cache with the keys and
// values of this step in it.
func (a Attention) Apply(g *graph.Graph, x *graph.Value, r Rotation, c Cache) (y, key, value *graph.Value) {
	in := graph.Attention{
		Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim,
		Query:   a.heads(g.Scope("q"), a.Q.Apply(g.Scope("q"), x), a.Heads, a.QNorm, r),   // [B, S, N*D]
		Key:     a.heads(g.Scope("k"), a.K.Apply(g.Scope("k"), x), a.KVHeads, a.KNorm, r), // [B, S, K*D]
		Value:   a.V.Apply(g.Scope("v"), x),                                               // [B, S, K*D]
		PastKey: c.Key, PastValue: c.Value, LastIndex: c.Last, Total: c.Total,
		Scale: float32(1 / math.Sqrt(float64(a.HeadDim))),
	}
	if r.fused {
		in.Cos, in.Sin = r.cos, r.sin
	}
	y, key, value = g.GroupQueryAttention(in)
	return a.O.Apply(g.Scope("o"), y), key, value
}

// heads does what has to happen to each head of x [B, S, n*D] before the
// attention kernel: the norm, and the rotation where the kernel cannot do it.
func (a Attention) heads(g *graph.Graph, x *graph.Value, n int, norm *RMSNorm, r Rotation) *graph.Value {
	if norm == nil && r.fused {
		return x
	}
	batch, steps := x.Dim(0), x.Dim(1)
	y := g.Reshape(x, batch, steps, graph.Fixed(n), graph.Fixed(a.HeadDim)) // [B, S, n, D]
	if norm != nil {
		y = norm.Apply(g, y)
	}
	if !r.fused {
		y = r.turn(g, y)
	}
	return g.Reshape(y, batch, steps, graph.Fixed(n*a.HeadDim)) // [B, S, n*D]
}
