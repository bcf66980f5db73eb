package exec

import (
	"slices"

	"athanor/engine/onnx"
)

// arrange drops the nodes that no output needs, which the library would
// compute, and inputs that nobody reads, and moves those that nobody reads to the end, the last first. The
// library orders a graph from its ends, beginning with the last one, and
// completes what each of them needs before it turns to the next. Without this
// it leaves the gradients of the weights until everything else is done, with
// all that they are made of in memory.
func arrange(g *onnx.Graph) {
	wanted := map[string]bool{} // values
	for _, v := range g.Outputs {
		wanted[v.Name] = true
	}
	read := map[string]bool{}
	var kept, ends []*onnx.Node
	for _, n := range slices.Backward(g.Nodes) {
		if !slices.ContainsFunc(n.Outputs, func(name string) bool { return wanted[name] }) {
			continue
		}
		if slices.ContainsFunc(n.Outputs, func(name string) bool { return read[name] }) {
			kept = append(kept, n)
		} else {
			ends = append(ends, n)
		}
		for _, name := range n.Inputs {
			wanted[name], read[name] = true, true
		}
	}
	slices.Reverse(kept)
	g.Nodes = append(kept, ends...)
	g.Inputs = slices.DeleteFunc(slices.Clone(g.Inputs), func(v onnx.ValueInfo) bool { return !wanted[v.Name] })
	g.Initializers = slices.DeleteFunc(slices.Clone(g.Initializers), func(t *onnx.Tensor) bool { return !wanted[t.Name] })
}
