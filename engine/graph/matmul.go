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

// MatMul multiplies the matrices a [..., M, K] and b [..., K, N], whose leading
// dimensions are the same: [..., M, N].
func (g *Graph) MatMul(a, b *Value) *Value {
	const op = "MatMul"
	wantReal(op, a, b)
	rank := a.Rank()
	if rank < 2 || b.Rank() != rank || !slices.Equal(a.shape[:rank-2], b.shape[:rank-2]) || a.Dim(-1) != b.Dim(-2) {
		fail(op, "%s by %s", a, b)
	}
	shape := slices.Clone(a.shape)
	shape[rank-1] = b.shape[rank-1]
	return g.one(op, onnx.DomainONNX, []*Value{a, b}, nil, a.dtype, shape)
}

// Gemm multiplies two matrices [M, K] and [K, N], each stored the other way
// round where transposed is set: [M, N]. The standard form of a linear layer
// whose weight [N, K] serves forward (transB) and backward (no transposition).
func (g *Graph) Gemm(a, b *Value, transA, transB bool) *Value {
	const op = "Gemm"
	wantReal(op, a, b)
	if a.Rank() != 2 || b.Rank() != 2 {
		fail(op, "%s by %s", a, b)
	}
	i, j := truth(transA), truth(transB)
	if a.shape[1-i] != b.shape[j] {
		fail(op, "%s by %s, transposed: %v, %v", a, b, transA, transB)
	}
	var attributes []onnx.Attribute
	if transA {
		attributes = append(attributes, integer("transA", 1))
	}
	if transB {
		attributes = append(attributes, integer("transB", 1))
	}
	return g.one(op, onnx.DomainONNX, []*Value{a, b}, attributes, a.dtype, Shape{a.shape[i], b.shape[1-j]})
}

// Dequantize widens codes (int8, uint8 or 4 bits) with one scale, and one zero
// of the codes' type or nil for 0, for each block of elements along an axis:
// (code - zero) * scale. The scales have the shape of the codes but for that
// axis, which has ceil(n/block).
func (g *Graph) Dequantize(codes, scales, zeros *Value, axis, block int) *Value {
	const op = "DequantizeLinear"
	wantFloat(op, scales)
	switch codes.dtype {
	case tensor.I8, tensor.U8, tensor.I4, tensor.U4:
	default:
		fail(op, "%s are no codes", codes)
	}
	n, ok := codes.Dim(axis).Size()
	if !ok || axis < 0 || block <= 0 {
		fail(op, "%s along axis %d in blocks of %d", codes, axis, block)
	}
	shape := slices.Clone(codes.shape)
	shape[axis] = Fixed((n + block - 1) / block)
	scales.Dims(shape...)
	in := []*Value{codes, scales}
	if zeros != nil {
		if zeros.Dims(shape...).dtype != codes.dtype {
			fail(op, "types of %s and %s differ", codes, zeros)
		}
		in = append(in, zeros)
	}
	return g.one(op, onnx.DomainONNX, in, []onnx.Attribute{integer("axis", axis), integer("block_size", block)}, scales.dtype, codes.shape)
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
