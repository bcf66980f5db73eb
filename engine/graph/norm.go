package graph

import (
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// RMSNorm divides x by the root of its mean square over the last dimension
// plus epsilon, and multiplies by weight. (Zhang and Sennrich 2019,
// arXiv:1910.07467.)
func (g *Graph) RMSNorm(x, weight *Value, epsilon float32) *Value {
	const op = "SimplifiedLayerNormalization"
	wantFloat(op, x, weight)
	weight.Dims(x.Dim(-1))
	attributes := []onnx.Attribute{integer("axis", -1), float("epsilon", epsilon), integer("stash_type", 1)}
	// ONNX Runtime registers this operator of its own in the standard domain.
	return g.one(op, onnx.DomainONNX, []*Value{x, weight}, attributes, tensor.F32, x.shape)
}

// SkipRMSNorm adds x and skip and normalises the sum: the normalised values
// and the sum, both shaped like x.
func (g *Graph) SkipRMSNorm(x, skip, weight *Value, epsilon float32) (normed, sum *Value) {
	const op = "SkipSimplifiedLayerNormalization"
	wantFloat(op, x, skip, weight)
	weight.Dims(x.Dim(-1))
	skip.Dims(x.shape...)
	full, none := result{tensor.F32, x.shape}, result{}
	out := g.add(op, onnx.DomainMicrosoft, []*Value{x, skip, weight}, []onnx.Attribute{float("epsilon", epsilon)}, full, none, none, full)
	return out[0], out[3]
}
