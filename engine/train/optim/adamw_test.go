package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
	"athanor/engine/train/optim"
)

// reference is AdamW on one value in float64, as the paper has it.
type reference struct{ value, first, second float64 }

func (r *reference) step(t int, gradient, rate, decay float64) {
	r.first = 0.9*r.first + 0.1*gradient
	r.second = 0.999*r.second + 0.001*gradient*gradient
	first := r.first / (1 - math.Pow(0.9, float64(t)))
	second := r.second / (1 - math.Pow(0.999, float64(t)))
	r.value -= rate*decay*r.value + rate*first/(math.Sqrt(second)+1e-8)
}

func normal(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

func mustNew(t *testing.T, rt compute.Runtime, params []optim.Param, options optim.Options) *optim.AdamW {
	t.Helper()
	o, err := optim.New(rt, params, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// TestAgainstReference follows every element through some steps, with tensors
// below and above the size of a piece, with and without decay.
func TestAgainstReference(t *testing.T) {
	cases := []struct {
		name  string
		rt    func(*testing.T) compute.Runtime
		sizes []int
	}{
		{"refexec", func(*testing.T) compute.Runtime { return refexec.New() }, []int{1, 7, 300}},
		{"onnxruntime", func(t *testing.T) compute.Runtime { return orttest.Open(t) }, []int{5, 1<<20 + 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rt := c.rt(t)
			r := rand.New(rand.NewPCG(1, 2))
			const rate, decay, factor = 0.01, 0.1, 0.5
			var params []optim.Param
			var want [][]reference
			for i, n := range c.sizes {
				values := normal(r, n)
				params = append(params, optim.Param{
					Name:  fmt.Sprint("tensor", i),
					Value: computetest.MustBuffer(t, rt, []int{n}, values...),
					Grad:  computetest.MustNew(t, rt, tensor.F32, n),
					Decay: i%2 == 1,
				})
				list := make([]reference, n)
				for k, v := range values {
					list[k].value = float64(v)
				}
				want = append(want, list)
			}
			o := mustNew(t, rt, params, optim.Options{WeightDecay: decay})
			for step := 1; step <= 4; step++ {
				for i, p := range params {
					gradient := normal(r, len(want[i]))
					copy(p.Grad.Bytes(), computetest.Bytes(gradient))
					for k := range want[i] {
						d := 0.0
						if p.Decay {
							d = decay
						}
						want[i][k].step(step, factor*float64(gradient[k]), rate, d)
					}
				}
				if err := o.Step(t.Context(), step, rate, factor); err != nil {
					t.Fatal(err)
				}
			}
			for i, p := range params {
				for k, got := range computetest.Floats(p.Value) {
					if w := want[i][k].value; math.Abs(float64(got)-w) > 2e-6*(1+math.Abs(w)) {
						t.Fatalf("%s[%d] = %g, want %g", p.Name, k, got, w)
					}
				}
			}
		})
	}
}

func TestNorm(t *testing.T) {
	rt := refexec.New()
	params := []optim.Param{
		{Name: "a", Value: computetest.MustNew(t, rt, tensor.F32, 2), Grad: computetest.MustBuffer[float32](t, rt, []int{2}, 3, 0)},
		{Name: "b", Value: computetest.MustNew(t, rt, tensor.F32, 1), Grad: computetest.MustBuffer[float32](t, rt, []int{1}, -4)},
	}
	if got := mustNew(t, rt, params, optim.Options{}).Norm(); got != 5 {
		t.Errorf("norm %g, want 5", got)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct{ norm, limit, want float64 }{
		{5, 0, 1}, {0.5, 1, 1}, {5, 1, 1 / (5 + 1e-6)}, {0, 1, 1},
	} {
		if got := optim.Clip(c.norm, c.limit); got != c.want {
			t.Errorf("Clip(%g, %g) = %g, want %g", c.norm, c.limit, got, c.want)
		}
	}
}

// TestStatesAreTheMemory restores an optimiser from the states of another and
// expects the same bytes from both.
func TestStatesAreTheMemory(t *testing.T) {
	rt := refexec.New()
	r := rand.New(rand.NewPCG(3, 4))
	start, gradient := normal(r, 9), normal(r, 9)
	open := func() (*optim.AdamW, optim.Param) {
		p := optim.Param{Name: "w", Value: computetest.MustBuffer(t, rt, []int{9}, start...), Grad: computetest.MustBuffer(t, rt, []int{9}, gradient...), Decay: true}
		return mustNew(t, rt, []optim.Param{p}, optim.Options{WeightDecay: 0.1}), p
	}
	step := func(o *optim.AdamW, n int) {
		if err := o.Step(t.Context(), n, 0.1, 1); err != nil {
			t.Fatal(err)
		}
	}
	one, p := open()
	step(one, 1)
	two, q := open()
	from, to := one.States()[0], two.States()[0]
	copy(to.Value, from.Value)
	copy(to.FirstMoment, from.FirstMoment)
	copy(to.SecondMoment, from.SecondMoment)
	step(one, 2)
	step(two, 2)
	if !slices.Equal(p.Value.Bytes(), q.Value.Bytes()) {
		t.Error("the restored optimiser goes another way")
	}
}

func TestRefusesOtherTensors(t *testing.T) {
	rt := refexec.New()
	for name, p := range map[string]optim.Param{
		"sizes": {Value: computetest.MustNew(t, rt, tensor.F32, 2), Grad: computetest.MustNew(t, rt, tensor.F32, 3)},
		"types": {Value: computetest.MustNew(t, rt, tensor.I32, 2), Grad: computetest.MustNew(t, rt, tensor.I32, 2)},
	} {
		if _, err := optim.New(rt, []optim.Param{p}, optim.Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkAdamW(b *testing.B) {
	rt := orttest.Open(b)
	const n = 4 << 20
	p := optim.Param{Value: computetest.MustNew(b, rt, tensor.F32, n), Grad: computetest.MustNew(b, rt, tensor.F32, n), Decay: true}
	o, err := optim.New(rt, []optim.Param{p}, optim.Options{WeightDecay: 0.1})
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	t := 0
	for b.Loop() {
		t++
		if err := o.Step(b.Context(), t, 1e-3, optim.Clip(o.Norm(), 1)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
}
