package grad

import (
	"fmt"
	"slices"

	"athanor/engine/graph"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Of adds to g the operators that compute the gradient of the sum over i of
// seeds[i] * outputs[i], all elements added up, with respect to each of wrt.
// A seed has the type and shape of its output; nil stands for ones.
//
// A gradient has the type and shape of its value, and is a new value that can
// be made an output of the model; it is nil where outputs do not depend on the
// value. Mistakes panic with *graph.Error, as the methods of Graph do.
//
// Dimensions of values on the way that are symbols should be dimensions of
// inputs of the model, because gradients of reductions, slices and lookups
// must be told their size.
func Of(g *graph.Graph, outputs, seeds, wrt []*graph.Value) []*graph.Value {
	if len(outputs) != len(seeds) {
		fail("%d outputs and %d seeds", len(outputs), len(seeds))
	}
	w := newWalk(g.Scope("grad"), wrt)
	first := len(w.nodes)
	for i, y := range outputs {
		seed := seeds[i]
		if seed == nil {
			seed = w.g.Scalar(1, y.DType())
		} else if seed.Dims(y.Shape()...).DType() != y.DType() {
			fail("types of output %s and seed %s differ", y, seed)
		}
		if w.depends[y] {
			w.accumulate(y, seed, nil)
		}
	}
	for i := range slices.Backward(w.nodes) {
		w.back(&w.nodes[i])
	}
	return w.results(first, wrt)
}

// walk is one use of Of.
type walk struct {
	g        *graph.Graph
	nodes    []graph.Node // of the graph to differentiate
	producer map[*graph.Value]*graph.Node
	depends  map[*graph.Value]bool          // on one of wrt
	grads    map[*graph.Value]*graph.Value  // so far, may be loose
	sources  map[*graph.Value][]*graph.Node // of the parts of a gradient, nil for a seed
}

func newWalk(g *graph.Graph, wrt []*graph.Value) *walk {
	w := &walk{
		g: g, nodes: g.Nodes(),
		producer: map[*graph.Value]*graph.Node{}, depends: map[*graph.Value]bool{}, grads: map[*graph.Value]*graph.Value{},
		sources: map[*graph.Value][]*graph.Node{},
	}
	for _, v := range wrt {
		if !floating(v) {
			fail("%s is not of floating-point numbers", v)
		}
		w.depends[v] = true
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		passes := !n.Stop && slices.ContainsFunc(n.Inputs, func(v *graph.Value) bool { return w.depends[v] })
		for _, y := range n.Outputs {
			if y == nil {
				continue
			}
			w.producer[y] = n
			if passes && floating(y) {
				w.depends[y] = true
			}
		}
	}
	return w
}

func floating(v *graph.Value) bool {
	switch v.DType() {
	case tensor.F32, tensor.F64, tensor.F16, tensor.BF16:
		return true
	}
	return false
}

// accumulate adds to the gradient of v what comes from a node that uses it.
func (w *walk) accumulate(v, dv *graph.Value, from *graph.Node) {
	w.sources[v] = append(w.sources[v], from)
	if had := w.grads[v]; had != nil {
		dv = w.g.Add(had, dv)
	}
	w.grads[v] = dv
}

// back takes the gradients of a node's outputs to its inputs.
func (w *walk) back(n *graph.Node) {
	if n.Stop || !slices.ContainsFunc(n.Outputs, func(y *graph.Value) bool { return w.grads[y] != nil }) {
		return
	}
	s := &step{walk: w, Node: n}
	if !slices.ContainsFunc(n.Inputs, func(v *graph.Value) bool { return w.depends[v] }) {
		return
	}
	name := n.Op
	if n.Domain != onnx.DomainONNX {
		name = n.Domain + "::" + n.Op
	}
	rule, ok := rules[name]
	if !ok {
		fail("operator %s of node %s has no rule", name, n.Name)
	}
	for i, dx := range rule(s) {
		if dx != nil && s.wants(i) {
			w.accumulate(n.Inputs[i], dx, n)
		}
	}
}

// results are the gradients of wrt; each becomes a value of its own, made by a
// node from first on.
func (w *walk) results(first int, wrt []*graph.Value) []*graph.Value {
	out := make([]*graph.Value, len(wrt))
	for i, v := range wrt {
		if dv := w.grads[v]; dv != nil {
			out[i] = w.stretch(dv, v.Shape())
		}
	}
	free := map[*graph.Value]bool{}
	for _, n := range w.g.Nodes()[first:] {
		for _, v := range n.Outputs {
			free[v] = true
		}
	}
	for i, dv := range out {
		if dv != nil && !free[dv] {
			out[i] = w.g.Identity(dv)
		}
		free[dv] = false
	}
	return out
}

// stretch repeats a loose gradient to the full shape.
func (w *walk) stretch(dv *graph.Value, shape graph.Shape) *graph.Value {
	if slices.Equal(dv.Shape(), shape) {
		return dv
	}
	return w.g.Expand(dv, shape...)
}

// step is a node on the way back, as its rule sees it.
type step struct {
	*walk
	*graph.Node
}

// wants tells whether the gradient of input i is needed.
func (s *step) wants(i int) bool {
	return i < len(s.Inputs) && s.Inputs[i] != nil && s.depends[s.Inputs[i]]
}

// loose is the gradient of output 0, perhaps loose.
func (s *step) loose() *graph.Value { return s.grads[s.Outputs[0]] }

// dy is the gradient of output 0 in full.
func (s *step) dy() *graph.Value {
	y := s.Outputs[0]
	s.grads[y] = s.stretch(s.grads[y], y.Shape()) // once, however often it is asked for
	return s.grads[y]
}

// scalar is a constant of the type of output 0.
func (s *step) scalar(v float64) *graph.Value { return s.g.Scalar(v, s.Outputs[0].DType()) }

// fold adds dv up over the dimensions that broadcasting made from shape.
func (s *step) fold(dv *graph.Value, shape graph.Shape) *graph.Value {
	var leading, ones []int
	shift := dv.Rank() - len(shape)
	for i := range dv.Rank() {
		switch {
		case i < shift:
			leading = append(leading, i)
		case shape[i-shift] == graph.Fixed(1) && dv.Dim(i) != graph.Fixed(1):
			ones = append(ones, i-shift)
		}
	}
	if len(leading) > 0 {
		dv = s.g.ReduceSum(dv, false, leading...)
	}
	if len(ones) > 0 {
		dv = s.g.ReduceSum(dv, true, ones...)
	}
	return dv
}

func fail(format string, args ...any) {
	panic(&graph.Error{Op: "grad.Of", Message: fmt.Sprintf(format, args...)})
}
