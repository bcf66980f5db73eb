package nn

import "athanor/engine/graph"

// RMSNorm scales x to unit root mean square over its last dimension and by a
// weight per channel.
type RMSNorm struct {
	Weight  *graph.Value // [H]
	Epsilon float32
}

// Apply maps x [..., H] to [..., H].
func (n RMSNorm) Apply(g *graph.Graph, x *graph.Value) *graph.Value {
	return g.RMSNorm(x, n.Weight, n.Epsilon)
}

// Skip adds a residual first: it returns the normalised sum and the sum.
func (n RMSNorm) Skip(g *graph.Graph, x, residual *graph.Value) (normed, sum *graph.Value) {
	return g.SkipRMSNorm(x, residual, n.Weight, n.Epsilon)
}
