package sample

import "math"

// roots are 2^(i/1024). They are made with operations that IEEE 754 defines to
// the last bit, so that they are the same on every machine.
var roots = func() (t [1024]float64) {
	root := 2.0
	for range 10 {
		root = math.Sqrt(root)
	}
	t[0] = 1
	for i := 1; i < len(t); i++ {
		t[i] = t[i-1] * root
	}
	return t
}()

// exp is e^x for x <= 0 with a relative error below 1e-9: a power of two, a root
// of two and a polynomial of degree 2. math.Exp takes several times as long,
// which counts over a vocabulary of 128k. The conversions keep the compiler from
// fusing operations, which it does on some machines only.
func exp(x float64) float64 {
	if !(x > -700) {
		return 0
	}
	y := x * (1024 / math.Ln2)
	k := int64(y) // towards zero: what is left is in (-1, 0]
	z := (y - float64(k)) * (math.Ln2 / 1024)
	p := 1 + float64(z*(1+float64(z*0.5)))
	return math.Float64frombits(uint64(k>>10+1023)<<52) * (roots[k&1023] * p)
}
