package refexec

import (
	"errors"
	"fmt"
	"slices"

	"athanor/engine/onnx"
)

// unpackBits reads element i of bytes that hold 8/bits elements each, the first
// in the low bits.
func unpackBits(packed []int64, i, bits int) int64 {
	per := 8 / bits
	return packed[i/per] >> (bits * (i % per)) & (1<<bits - 1)
}

func bitsOf(c *call, otherwise int64) (int, error) {
	bits := int(c.int("bits", otherwise))
	if bits != 4 && bits != 8 {
		return 0, fmt.Errorf("%d bits are not supported", bits)
	}
	return bits, nil
}

// matMulNBits multiplies with a weight of N rows of K elements in blocks: a
// uint8 [N, blocks, block*bits/8], scales [N, blocks], zero points packed per
// row or of the scales' type, 2^(bits-1) when omitted.
func matMulNBits(c *call) ([]*array, error) {
	if err := c.need(3); err != nil {
		return nil, err
	}
	bits, err := bitsOf(c, 4)
	if err != nil {
		return nil, err
	}
	if c.arg(4) != nil {
		return nil, errors.New("g_idx is not supported")
	}
	x, k, n, block := c.in[0], int(c.int("K", 0)), int(c.int("N", 0)), int(c.int("block_size", 0))
	rank := len(x.shape)
	if rank == 0 || k <= 0 || n <= 0 || block <= 0 || x.shape[rank-1] != k {
		return nil, fmt.Errorf("input %[4]v does not fit K=%[1]d, N=%[2]d, blocks of %[3]d", k, n, block, x.shape)
	}
	blocks := (k + block - 1) / block
	q, scales, zeros := c.in[1], c.in[2], c.arg(3)
	if q.size() != n*blocks*block*bits/8 || scales.size() != n*blocks {
		return nil, fmt.Errorf("weight %v and scales %v for K=%d, N=%d", q.shape, scales.shape, k, n)
	}
	rowBytes := (blocks*bits + 7) / 8
	w, err := newArray(onnx.Float, n, k)
	if err != nil {
		return nil, err
	}
	for row := range n {
		for col := range k {
			b := col / block
			zero := float64(int(1) << (bits - 1))
			switch {
			case zeros == nil:
			case isFloat(zeros.typ):
				zero = zeros.f[row*blocks+b]
			default:
				zero = float64(unpackBits(zeros.i[row*rowBytes:][:rowBytes], b, bits))
			}
			v := float64(unpackBits(q.i, row*blocks*block+col, bits))
			w.f[row*k+col] = (v - zero) * scales.f[row*blocks+b]
		}
	}
	y, err := newArray(onnx.Float, append(slices.Clone(x.shape[:rank-1]), n)...)
	if err != nil {
		return nil, err
	}
	multiply(y.f, matrix{data: x.f, shape: []int{len(x.f) / k, k}}, matrix{data: w.f, shape: []int{n, k}, transposed: true}, 1)
	if bias := c.arg(5); bias != nil {
		for i := range y.f {
			y.f[i] += bias.f[i%n]
		}
	}
	return []*array{y}, nil
}

// gatherBlockQuantized looks rows of a block-quantised table up.
func gatherBlockQuantized(c *call) ([]*array, error) {
	if err := c.need(3); err != nil {
		return nil, err
	}
	bits, err := bitsOf(c, 4)
	if err != nil {
		return nil, err
	}
	q, ids, scales, zeros := c.in[0], c.in[1], c.in[2], c.arg(3)
	block := int(c.int("block_size", 128))
	if len(q.shape) != 2 || block <= 0 || c.int("gather_axis", 0) != 0 || c.int("quantize_axis", 1) != 1 {
		return nil, errors.New("only rows of a table with blocks along its rows are supported")
	}
	if q.typ != onnx.Uint8 {
		bits = 8 // elements of 4-bit types are unpacked already
	}
	width := q.shape[1] * 8 / bits
	blocks := (width + block - 1) / block
	if scales.size() != q.shape[0]*blocks {
		return nil, fmt.Errorf("scales %v for data %v", scales.shape, q.shape)
	}
	y, err := newArray(scales.typ, append(slices.Clone(ids.shape), width)...)
	if err != nil {
		return nil, err
	}
	for i, id := range ids.i {
		row, err := axisOf(id, q.shape[0])
		if err != nil {
			return nil, fmt.Errorf("index %d of %d", id, q.shape[0])
		}
		for col := range width {
			b := col / block
			v := q.i[row*q.shape[1]+min(col, q.shape[1]-1)]
			zero := int64(0)
			if q.typ == onnx.Uint8 {
				v = unpackBits(q.i[row*q.shape[1]:][:q.shape[1]], col, bits)
				zero = 1 << (bits - 1)
			}
			if zeros != nil {
				zero = zeroOf(zeros, row, b, bits)
			}
			y.f[i*width+col] = float64(v-zero) * scales.f[row*blocks+b]
		}
	}
	return []*array{y}, nil
}

// zeroOf is the zero point of a block; in a uint8 table they are packed.
func zeroOf(zeros *array, row, b, bits int) int64 {
	per := zeros.size() / zeros.shape[0]
	line := zeros.i[row*per:][:per]
	if zeros.typ == onnx.Uint8 {
		return unpackBits(line, b, bits)
	}
	return line[b]
}

// dequantizeLinear is (x - zero) * scale per tensor, per axis or per block.
func dequantizeLinear(c *call) ([]*array, error) {
	if err := c.need(2); err != nil {
		return nil, err
	}
	x, scale, zero := c.in[0], c.in[1], c.arg(2)
	if isFloat(x.typ) || !isFloat(scale.typ) || (zero != nil && zero.size() != scale.size()) {
		return nil, fmt.Errorf("data types %d and %d", x.typ, scale.typ)
	}
	y, err := newArray(scale.typ, x.shape...)
	if err != nil {
		return nil, err
	}
	through, err := scaleStrides(c, x, scale)
	if err != nil {
		return nil, err
	}
	own := strides(x.shape)
	for at := range x.i {
		s := 0
		for d := range x.shape {
			s += at / own[d] % x.shape[d] / through[d].block * through[d].stride
		}
		v := x.i[at]
		if zero != nil {
			v -= zero.i[s]
		}
		y.f[at] = float64(v) * scale.f[s]
	}
	return []*array{y}, nil
}

// blockStride is how a dimension of the data indexes the scales.
type blockStride struct{ block, stride int }

func scaleStrides(c *call, x, scale *array) ([]blockStride, error) {
	out := slices.Repeat([]blockStride{{1, 0}}, len(x.shape))
	if scale.size() == 1 {
		return out, nil
	}
	axis, err := axisOf(c.int("axis", 1), len(x.shape))
	if err != nil {
		return nil, err
	}
	block := int(c.int("block_size", 0))
	if block == 0 {
		if len(scale.shape) != 1 || scale.shape[0] != x.shape[axis] {
			return nil, fmt.Errorf("scales %v for axis %d of %v", scale.shape, axis, x.shape)
		}
		out[axis] = blockStride{1, 1}
		return out, nil
	}
	want := slices.Clone(x.shape)
	want[axis] = (want[axis] + block - 1) / block
	if block < 0 || !slices.Equal(scale.shape, want) {
		return nil, fmt.Errorf("scales %v for blocks of %d along axis %d of %v", scale.shape, block, axis, x.shape)
	}
	own := strides(scale.shape)
	for d := range out {
		out[d] = blockStride{1, own[d]}
	}
	out[axis].block = block
	return out, nil
}
