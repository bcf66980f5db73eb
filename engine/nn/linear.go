package nn

import "athanor/engine/graph"

// Matrix is a weight [N, K] as a graph holds it: Dense in float32, or Blocks
// in a block quantisation. Exactly one is set.
type Matrix struct {
	Dense  *graph.Value
	Blocks *graph.Blocks
}

// Linear is x times the transpose of Weight, plus what the adapters add, plus
// Bias where there is one.
type Linear struct {
	Weight   Matrix
	Bias     *graph.Value // [N] or nil
	Adapters *Adapters    // or nil
}

// Apply maps x [..., K] to [..., N]; with adapters x is [B, S, K].
func (l Linear) Apply(g *graph.Graph, x *graph.Value) *graph.Value {
	var y *graph.Value
	if l.Weight.Blocks != nil {
		y = g.MatMulBlocks(x, *l.Weight.Blocks)
	} else {
		y = g.MatMulTransposed(x, l.Weight.Dense)
	}
	if l.Adapters != nil {
		y = g.Add(y, l.Adapters.Apply(g.Scope("lora"), x))
	}
	if l.Bias != nil {
		y = g.Add(y, l.Bias)
	}
	return y
}

// Embedding looks rows of Table [V, H] up.
type Embedding struct{ Table Matrix }

// Apply maps ids [B, S] to [B, S, H].
func (e Embedding) Apply(g *graph.Graph, ids *graph.Value) *graph.Value {
	if e.Table.Blocks != nil {
		return g.GatherBlocks(*e.Table.Blocks, ids)
	}
	return g.Gather(e.Table.Dense, ids)
}
