package weights

import "fmt"

// Format is a block quantisation of matrix rows, in the layout of the
// com.microsoft operators MatMulNBits and GatherBlockQuantized: each row is cut
// into blocks of Block values; a block shares one float32 scale and, with
// ZeroPoints, one zero point.
//
//	value = (code - zero) * scale      codes unsigned, Bits wide
//
// Without ZeroPoints the zero is 2^(Bits-1). Four-bit codes and zero points
// are packed two to a byte, the first in the low half. A row whose length is
// no multiple of Block ends in a block padded with zeros.
type Format struct {
	Bits       int // 4 or 8
	Block      int // 16, 32, 64, 128 or 256 values
	ZeroPoints bool
}

// Check refuses formats that the operators do not know.
func (f Format) Check() error {
	if f.Bits != 4 && f.Bits != 8 {
		return fmt.Errorf("quantisation to %d bits is not supported; 4 and 8 are", f.Bits)
	}
	if f.Block < 16 || f.Block > 256 || f.Block&(f.Block-1) != 0 {
		return fmt.Errorf("quantisation block of %d is not supported; 16, 32, 64, 128 and 256 are", f.Block)
	}
	return nil
}

// Blocks is the number of blocks of a row.
func (f Format) Blocks(cols int) int { return (cols + f.Block - 1) / f.Block }

// BlockBytes is the number of bytes of the codes of one block.
func (f Format) BlockBytes() int { return f.Block * f.Bits / 8 }

// RowBytes is the number of bytes of the codes of a row.
func (f Format) RowBytes(cols int) int { return f.Blocks(cols) * f.BlockBytes() }

// ZeroBytes is the number of bytes of the zero points of a row, 0 when the
// format has none.
func (f Format) ZeroBytes(cols int) int {
	if !f.ZeroPoints {
		return 0
	}
	return (f.Blocks(cols)*f.Bits + 7) / 8
}

// QuantizeRow converts one row. codes has RowBytes, scales Blocks and zeros
// ZeroBytes elements. It reports false when a value is not finite.
func (f Format) QuantizeRow(row []float32, codes []byte, scales []float32, zeros []byte) bool {
	var q [256]uint8
	clear(zeros)
	for b := range f.Blocks(len(row)) {
		x := row[b*f.Block : min((b+1)*f.Block, len(row))]
		scale, zero, ok := f.fit(x, q[:f.Block])
		if !ok {
			return false
		}
		scales[b] = scale
		for i := len(x); i < f.Block; i++ {
			q[i] = zero
		}
		f.pack(codes[b*f.BlockBytes():], q[:f.Block])
		if f.ZeroPoints {
			f.putZero(zeros, b, zero)
		}
	}
	return true
}

// fit chooses scale, zero point and codes of one block.
func (f Format) fit(x []float32, q []uint8) (scale float32, zero uint8, ok bool) {
	lo, hi := float32(0), float32(0)
	for _, v := range x {
		if v-v != 0 { // infinite or NaN
			return 0, 0, false
		}
		if v < lo {
			lo = v
		} else if v > hi {
			hi = v
		}
	}
	if hi < tiny && lo > -tiny {
		lo, hi = 0, 0 // 1/scale would overflow; as good as zero
	}
	switch {
	case f.ZeroPoints:
		scale, zero = fitRange(x, lo, hi, f.Bits, q)
	case f.Bits == 4:
		scale, zero = fit4(x, lo, hi, q)
	default:
		scale, zero = max(hi, -lo)/127, 128
		round(x, scale, 128, 255, q)
	}
	return scale, zero, true
}

// tiny is the magnitude below which a block is stored as zeros.
const tiny = 0x1p-100

// shrink holds the tried scales of a four-bit block, relative to the one at
// which its largest magnitude gets the outermost code. Clipping the one
// largest value a little often pays for finer steps of all others.
var shrink = [...]float32{1, 0.94, 0.88, 0.82, 8.0 / 7}

// fit4 finds a symmetric four-bit scale of small squared error: a few
// candidates, then the least-squares scale of the best one's codes. The scale
// is negative where the extreme value is positive, as codes reach from -8 to 7.
func fit4(x []float32, lo, hi float32, q []uint8) (scale float32, zero uint8) {
	const mid = 8
	extreme := hi
	if -lo > hi {
		extreme = lo
	}
	if extreme == 0 {
		for i := range x {
			q[i] = mid
		}
		return 0, mid
	}
	best := float32(-1)
	for _, s := range shrink {
		try := extreme / -mid * s
		if e := squaredError(x, try, mid, 15); best < 0 || e < best {
			best, scale = e, try
		}
	}
	round(x, scale, mid, 15, q)
	var xq, qq float32
	for i, v := range x {
		c := float32(q[i]) - mid
		xq += v * c
		qq += c * c
	}
	if s := xq / qq; s-s == 0 && s != 0 { // finite: huge values may have overflowed
		scale = s
	}
	return scale, mid
}

// fitRange maps [lo, hi], which includes 0, onto all codes.
func fitRange(x []float32, lo, hi float32, bits int, q []uint8) (scale float32, zero uint8) {
	top := int32(1)<<bits - 1
	scale = hi/float32(top) - lo/float32(top) // divided first: hi-lo may overflow
	if scale == 0 {
		zero = uint8(1) << (bits - 1)
		round(x, 0, float32(zero), top, q)
		return 0, zero
	}
	zero = uint8(nearest(-lo/scale, top))
	round(x, scale, float32(zero), top, q)
	return scale, zero
}

// round gives each value its nearest code, from 0 to top.
func round(x []float32, scale, zero float32, top int32, q []uint8) {
	inv := float32(0)
	if scale != 0 {
		inv = 1 / scale
	}
	q = q[:len(x)]
	for i, v := range x {
		q[i] = uint8(nearest(v*inv+zero, top))
	}
}

// nearest rounds half up and keeps within the codes; below zero the conversion
// cuts towards zero, which the lower bound makes the same.
func nearest(v float32, top int32) int32 {
	return min(max(int32(v+0.5), 0), top)
}

// squaredError is the error that round would make, summed in units of the
// scale. Two sums run side by side: one alone would wait for its own additions.
func squaredError(x []float32, scale, zero float32, top int32) float32 {
	inv := 1 / scale
	var even, odd float32
	for len(x) >= 2 {
		a, b := x[0]*inv+zero, x[1]*inv+zero
		d, e := a-float32(nearest(a, top)), b-float32(nearest(b, top))
		even += d * d
		odd += e * e
		x = x[2:]
	}
	for _, v := range x {
		d := v*inv + zero
		d -= float32(nearest(d, top))
		even += d * d
	}
	return (even + odd) * scale * scale
}

func (f Format) pack(dst []byte, q []uint8) {
	if f.Bits == 8 {
		copy(dst, q)
		return
	}
	for i := 0; i < len(q); i += 2 {
		dst[i/2] = q[i] | q[i+1]<<4
	}
}

func (f Format) putZero(zeros []byte, block int, zero uint8) {
	if f.Bits == 8 {
		zeros[block] = zero
		return
	}
	zeros[block/2] |= zero << (block % 2 * 4)
}

// DequantizeRow is the inverse of QuantizeRow, as the operators compute it.
func (f Format) DequantizeRow(row []float32, codes []byte, scales []float32, zeros []byte) {
	for i := range row {
		b := i / f.Block
		zero := uint8(1) << (f.Bits - 1)
		code := uint8(0)
		if f.Bits == 8 {
			code = codes[i]
			if f.ZeroPoints {
				zero = zeros[b]
			}
		} else {
			code = codes[i/2] >> (i % 2 * 4) & 15
			if f.ZeroPoints {
				zero = zeros[b/2] >> (b % 2 * 4) & 15
			}
		}
		row[i] = float32(int(code)-int(zero)) * scales[b]
	}
}
