package nn

import "athanor/engine/graph"

// Adapters are low-rank changes of a linear map, one of which applies to each
// row of a batch: x A B, with the factor of the adapter in B. (Hu and others
// 2021, arXiv:2106.09685.) They are inputs of the graph, so that rows with
// different adapters, and with none, run together over one copy of the weights.
type Adapters struct {
	Row *graph.Value // int64 [B], the adapter of each row
	A   *graph.Value // [P, K, Q], all adapters; Q is the largest rank, zeros fill up smaller ones
	B   *graph.Value // [P, Q, N]
}

// Apply maps x [B, S, K] to [B, S, N].
func (a Adapters) Apply(g *graph.Graph, x *graph.Value) *graph.Value {
	down := g.MatMul(x, g.Gather(a.A, a.Row))   // [B, S, Q]
	return g.MatMul(down, g.Gather(a.B, a.Row)) // [B, S, N]
}
