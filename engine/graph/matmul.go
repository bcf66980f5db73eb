package graph

import (
	"slices"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// MatMulTransposed is x [..., K] times the transpose of w [N, K]: [..., N].
// The weight stays as checkpoints store it, so that an embedding table can be
// the output projection too.
func (g *Graph) MatMulTransposed(x, w *Value) *Value {
	const op = "FusedMatMul"
	wantFloat(op, x, w)
	if x.Rank() < 2 || w.Rank() != 2 || x.Dim(-1) != w.shape[1] {
		fail(op, "%s by the transpose of %s", x, w)
	}
	shape := slices.Clone(x.shape)
	shape[len(shape)-1] = w.shape[0]
	return g.one(op, onnx.DomainMicrosoft, []*Value{x, w}, []onnx.Attribute{integer("transB", 1)}, tensor.F32, shape)
}

// Blocks is a matrix [N, K] in a block quantisation: each row is cut into
// blocks of Block values with one scale each. Codes of 4 bits are packed two
// to a byte, the first in the low half.
type Blocks struct {
	N, K        int
	Bits, Block int
	Codes       *Value // uint8, [N, k, Block*Bits/8] for products, [N, K*Bits/8] for lookup; k = ceil(K/Block)
	Scales      *Value // float32 [N, k]
	Zeros       *Value // uint8 [N, ceil(k*Bits/8)], nil for 2^(Bits-1) everywhere
}

func (b Blocks) check(op string, codes Shape) {
	k := (b.K + b.Block - 1) / b.Block
	if b.Codes.dtype != tensor.U8 || !slices.Equal(b.Codes.shape, codes) {
		fail(op, "codes %s, want uint8 %s", b.Codes, codes)
	}
	wantFloat(op, b.Scales)
	b.Scales.Dims(Fixed(b.N), Fixed(k))
	if b.Zeros != nil {
		b.Zeros.Dims(Fixed(b.N), Fixed((k*b.Bits+7)/8))
	}
}

// MatMulBlocks is x [..., K] times the transpose of w [N, K]: [..., N]. The
// activations are rounded to int8 per block inside of the product ("accuracy
// level 4"), which is what makes it fast.
func (g *Graph) MatMulBlocks(x *Value, w Blocks) *Value {
	const op = "MatMulNBits"
	wantFloat(op, x)
	if x.Rank() < 2 || x.Dim(-1) != Fixed(w.K) {
		fail(op, "%s by a matrix of %d columns", x, w.K)
	}
	w.check(op, Shape{Fixed(w.N), Fixed((w.K + w.Block - 1) / w.Block), Fixed(w.Block * w.Bits / 8)})
	shape := slices.Clone(x.shape)
	shape[len(shape)-1] = Fixed(w.N)
	attributes := []onnx.Attribute{
		integer("K", w.K), integer("N", w.N), integer("bits", w.Bits), integer("block_size", w.Block), integer("accuracy_level", 4),
	}
	return g.one(op, onnx.DomainMicrosoft, withZeros(x, w.Codes, w), attributes, tensor.F32, shape)
}

// GatherBlocks looks rows of w [N, K] up and widens them: [ids..., K]. K must
// be a multiple of the block. An index outside of the table gives zeros.
func (g *Graph) GatherBlocks(w Blocks, ids *Value) *Value {
	const op = "GatherBlockQuantized"
	if w.K%w.Block != 0 || (ids.dtype != tensor.I64 && ids.dtype != tensor.I32) {
		fail(op, "%d columns in blocks of %d by %s", w.K, w.Block, ids)
	}
	w.check(op, Shape{Fixed(w.N), Fixed(w.K * w.Bits / 8)})
	attributes := []onnx.Attribute{
		integer("gather_axis", 0), integer("quantize_axis", 1), integer("block_size", w.Block), integer("bits", w.Bits),
	}
	return g.one(op, onnx.DomainMicrosoft, withZeros(w.Codes, ids, w), attributes, tensor.F32, append(slices.Clone(ids.shape), Fixed(w.K)))
}

func withZeros(first, second *Value, w Blocks) []*Value {
	in := []*Value{first, second, w.Scales}
	if w.Zeros != nil {
		in = append(in, w.Zeros)
	}
	return in
}
