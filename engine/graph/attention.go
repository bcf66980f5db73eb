package graph

import (
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Attention are the inputs of GroupQueryAttention.
type Attention struct {
	Heads, KVHeads, HeadDim int
	Query                   *Value // [B, S, Heads*HeadDim]
	Key, Value              *Value // [B, S, KVHeads*HeadDim]
	PastKey, PastValue      *Value // [B, KVHeads, M, HeadDim], room for M positions
	LastIndex               *Value // int32 [B], total length of each row minus one
	Total                   *Value // int32 [1], the longest total length
	Cos, Sin                *Value // [P, HeadDim/2], P >= Total: rotate inside; or both nil
	Scale                   float32
}

// GroupQueryAttention appends the S new keys and values of each row to its
// cache and attends causally to all of them: the output [B, S, Heads*HeadDim]
// and the caches, which may be bound to the memory of the past ones. Rows may
// have different lengths at S = 1 and at a first prompt, which is padded on
// the right; otherwise B is 1. (Ainslie and others 2023, arXiv:2305.13245.)
func (g *Graph) GroupQueryAttention(a Attention) (out, key, value *Value) {
	const op = "GroupQueryAttention"
	wantFloat(op, a.Query, a.Key, a.Value, a.PastKey, a.PastValue)
	if a.Query.Rank() != 3 || a.PastKey.Rank() != 4 || a.KVHeads == 0 || a.Heads%a.KVHeads != 0 {
		fail(op, "query %s, past keys %s, %d heads over %d", a.Query, a.PastKey, a.Heads, a.KVHeads)
	}
	batch, steps, room := a.Query.shape[0], a.Query.shape[1], a.PastKey.shape[2]
	a.Query.Dims(batch, steps, Fixed(a.Heads*a.HeadDim))
	a.Key.Dims(batch, steps, Fixed(a.KVHeads*a.HeadDim))
	a.Value.Dims(batch, steps, Fixed(a.KVHeads*a.HeadDim))
	a.PastKey.Dims(batch, Fixed(a.KVHeads), room, Fixed(a.HeadDim))
	a.PastValue.Dims(batch, Fixed(a.KVHeads), room, Fixed(a.HeadDim))
	if a.LastIndex.Dims(batch).dtype != tensor.I32 || a.Total.Dims(Fixed(1)).dtype != tensor.I32 {
		fail(op, "lengths %s and %s are not int32", a.LastIndex, a.Total)
	}
	inputs := []*Value{a.Query, a.Key, a.Value, a.PastKey, a.PastValue, a.LastIndex, a.Total}
	attributes := []onnx.Attribute{integer("num_heads", a.Heads), integer("kv_num_heads", a.KVHeads), float("scale", a.Scale)}
	if a.Cos != nil {
		wantFloat(op, a.Cos, a.Sin)
		a.Cos.Dims(a.Cos.Dim(0), Fixed(a.HeadDim/2))
		a.Sin.Dims(a.Cos.shape...)
		inputs = append(inputs, a.Cos, a.Sin)
		attributes = append(attributes, integer("do_rotary", 1))
	}
	cache := result{tensor.F32, a.PastKey.shape}
	values := g.add(op, onnx.DomainMicrosoft, inputs, attributes, result{tensor.F32, a.Query.shape}, cache, cache)
	return values[0], values[1], values[2]
}
