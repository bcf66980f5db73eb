package tensor

import "math"

// F16ToF32 widens an IEEE 754 half. Every half has an exact float32; a NaN
// stays a NaN with its payload.
func F16ToF32(h uint16) float32 {
	bits := uint32(h&0x7fff) << 13
	if h&0x7c00 == 0x7c00 { // infinity or NaN: the exponent is all ones in both
		return math.Float32frombits(uint32(h&0x8000)<<16 | bits | 0x7f800000)
	}
	// The shifted bits are the value scaled by 2^-112 (the difference of the
	// exponent biases), for subnormal halves too; the product is exact.
	f := math.Float32frombits(bits) * 0x1p112
	return math.Float32frombits(uint32(h&0x8000)<<16 | math.Float32bits(f))
}

// F32ToF16 rounds to the nearest half, ties to even. Magnitudes from 65520 on
// become infinity; a NaN becomes a quiet NaN.
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(bits>>13&0x3ff)
	case bits >= 0x477ff000: // 65520, half way between the largest half and 2^16
		return sign | 0x7c00
	case bits < 0x38800000: // below 2^-14: a subnormal half, steps of 2^-24
		// One unit in the last place of 0.5 is 2^-24, so that the addition
		// rounds exactly as wanted.
		sum := math.Float32frombits(bits) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	bits -= 112 << 23
	return sign | uint16((bits+0xfff+bits>>13&1)>>13)
}

// BF16ToF32 widens a bfloat16, which is the upper half of a float32.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even. A NaN becomes a
// quiet NaN.
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
