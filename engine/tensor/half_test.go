package tensor_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"athanor/engine/tensor"
)

// half16 is the value of a finite half by its definition.
func half16(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	if exp == 0 {
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

func TestF16EveryValueRoundTrips(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := tensor.F16ToF32(h)
		if h&0x7c00 == 0x7c00 {
			if h&0x3ff != 0 {
				if !math.IsNaN(float64(f)) || tensor.F32ToF16(f)&0x7c00 != 0x7c00 || tensor.F32ToF16(f)&0x3ff == 0 {
					t.Fatalf("%#04x: NaN lost: %v, back %#04x", h, f, tensor.F32ToF16(f))
				}
				continue
			}
			if !math.IsInf(float64(f), 0) || math.Signbit(float64(f)) != (h&0x8000 != 0) {
				t.Fatalf("%#04x: got %v, want infinity", h, f)
			}
		} else if got, want := float64(f), half16(h); got != want || math.Signbit(got) != math.Signbit(want) {
			t.Fatalf("%#04x: got %v, want %v", h, got, want)
		}
		if got := tensor.F32ToF16(f); got != h {
			t.Fatalf("%#04x -> %v -> %#04x", h, f, got)
		}
	}
}

func TestBF16EveryValueRoundTrips(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := tensor.BF16ToF32(h)
		got := tensor.F32ToBF16(f)
		if h&0x7f80 == 0x7f80 && h&0x7f != 0 {
			if got != h|0x40 {
				t.Fatalf("%#04x: NaN became %#04x", h, got)
			}
		} else if got != h {
			t.Fatalf("%#04x -> %v -> %#04x", h, f, got)
		}
	}
}

// TestF16RoundsToNearestEven checks the middle between each two neighbours and
// the float32 values beside it.
func TestF16RoundsToNearestEven(t *testing.T) {
	for h := uint16(0); h < 0x7bff; h++ {
		lo, hi := half16(h), half16(h+1)
		mid := float32((lo + hi) / 2) // exact: one more bit
		even := h + h&1
		for _, sign := range []uint16{0, 0x8000} {
			s := float32(1)
			if sign != 0 {
				s = -1
			}
			if got := tensor.F32ToF16(s * mid); got != sign|even {
				t.Fatalf("middle %v: got %#04x, want %#04x", s*mid, got, sign|even)
			}
			if got := tensor.F32ToF16(s * math.Nextafter32(mid, 0)); got != sign|h {
				t.Fatalf("below %v: got %#04x, want %#04x", s*mid, got, sign|h)
			}
			if got := tensor.F32ToF16(s * math.Nextafter32(mid, 1e6)); got != sign|(h+1) {
				t.Fatalf("above %v: got %#04x, want %#04x", s*mid, got, sign|(h+1))
			}
		}
	}
}

func TestF16Edges(t *testing.T) {
	for _, c := range []struct {
		f    float32
		want uint16
	}{
		{65504, 0x7bff}, {65519.996, 0x7bff}, {65520, 0x7c00}, {1e10, 0x7c00}, {-1e10, 0xfc00},
		{float32(math.Inf(1)), 0x7c00}, {0x1p-25, 0}, {math.Nextafter32(0x1p-25, 1), 1}, {1e-40, 0}, {-1e-40, 0x8000},
	} {
		if got := tensor.F32ToF16(c.f); got != c.want {
			t.Errorf("%v: got %#04x, want %#04x", c.f, got, c.want)
		}
	}
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	for h := uint16(0); h < 0x7f7f; h++ {
		mid := math.Float32frombits(uint32(h)<<16 | 0x8000)
		if got, want := tensor.F32ToBF16(mid), h+h&1; got != want {
			t.Fatalf("middle %v: got %#04x, want %#04x", mid, got, want)
		}
		if got := tensor.F32ToBF16(math.Nextafter32(mid, 0)); got != h {
			t.Fatalf("below %v: got %#04x, want %#04x", mid, got, h)
		}
	}
	if got := tensor.F32ToBF16(math.MaxFloat32); got != 0x7f80 {
		t.Errorf("largest float32: got %#04x, want infinity", got)
	}
}

func TestFloat32sRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]float32, 100)
	for i := range src {
		src[i] = tensor.F16ToF32(uint16(r.UintN(0x7c00))) // exact in f16
	}
	for _, c := range []struct {
		d   tensor.DType
		tol float64
	}{{tensor.F32, 0}, {tensor.F16, 0}, {tensor.BF16, 1.0 / 256}} {
		buf := make([]byte, len(src)*c.d.Size())
		if err := tensor.PutFloat32s(buf, src, c.d); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(src))
		if err := tensor.Float32s(got, buf, c.d); err != nil {
			t.Fatal(err)
		}
		for i := range src {
			if diff := math.Abs(float64(got[i] - src[i])); diff > c.tol*math.Abs(float64(src[i])) {
				t.Errorf("%s: %v became %v", c.d, src[i], got[i])
			}
		}
	}
	f64 := []byte{0, 0, 0, 0, 0, 0, 0xf8, 0xbf} // -1.5
	got := make([]float32, 1)
	if err := tensor.Float32s(got, f64, tensor.F64); err != nil || !slices.Equal(got, []float32{-1.5}) {
		t.Errorf("f64: got %v, %v", got, err)
	}
}

func TestFloat32sRefusesWrongSizesAndTypes(t *testing.T) {
	if err := tensor.Float32s(make([]float32, 2), make([]byte, 7), tensor.F32); err == nil {
		t.Error("short source accepted")
	}
	if err := tensor.Float32s(make([]float32, 1), make([]byte, 8), tensor.I64); err == nil {
		t.Error("integers accepted")
	}
	if err := tensor.PutFloat32s(make([]byte, 1), make([]float32, 1), tensor.I8); err == nil {
		t.Error("encoding as int8 accepted")
	}
	if err := tensor.Float32s(nil, nil, tensor.Invalid); err == nil {
		t.Error("invalid type accepted")
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		n     int64
		ok    bool
	}{
		{nil, 1, true}, {[]int64{2, 3}, 6, true}, {[]int64{math.MaxInt64, 0}, 0, true},
		{[]int64{1 << 32, 1 << 31}, 0, false}, {[]int64{1 << 32, 1 << 30, 1}, 1 << 62, true},
		{[]int64{0, -1}, 0, false}, {[]int64{math.MaxInt64, 1}, math.MaxInt64, true},
	} {
		if n, ok := tensor.Elements(c.shape); n != c.n || ok != c.ok {
			t.Errorf("%v: got %d, %v; want %d, %v", c.shape, n, ok, c.n, c.ok)
		}
	}
}
