package nn

import "athanor/engine/graph"

// GatedMLP is the SwiGLU feed-forward layer: Down(silu(Gate(x)) * Up(x)).
// (Shazeer 2020, arXiv:2002.05202.)
type GatedMLP struct {
	Gate, Up Linear // [F, H]
	Down     Linear // [H, F]
}

// Apply maps x [..., H] to [..., H].
func (m GatedMLP) Apply(g *graph.Graph, x *graph.Value) *graph.Value {
	gate := g.Silu(m.Gate.Apply(g.Scope("gate"), x))    // [..., F]
	hidden := g.Mul(gate, m.Up.Apply(g.Scope("up"), x)) // [..., F]
	return m.Down.Apply(g.Scope("down"), hidden)        // [..., H]
}
