package gradcheck

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"

	"athanor/engine/compute"
	"athanor/engine/grad"
	"athanor/engine/graph"
	"athanor/engine/onnx"
)

// Bounds of Check, relative to the largest element of a gradient.
const (
	DifferenceBound = 1e-6 // float64 gradients against finite differences
	NarrowBound     = 1e-4 // float32 against float64
)

// Problem is a function to differentiate.
type Problem struct {
	// Build writes the function in float32 and returns its results and the
	// inputs to differentiate by.
	Build func(g *graph.Graph) (outputs, wrt []*graph.Value)
	Sizes map[string]int // of symbols
	// Values of inputs. Floating-point inputs that are not given are random in
	// [-1, 1); others must be given.
	Values Values
	// Samples is how many elements of each input are varied one by one; 0
	// stands for 16. All together are always varied, in a random direction.
	Samples int
	Seed    uint64 // of everything random
}

// Report tells the largest relative errors that a check has seen.
type Report struct {
	Difference float64 // of float64 gradients, against finite differences
	Narrow     float64 // of float32 results and gradients, against float64
}

// Check compares the gradients of a problem in float64 on exact with finite
// differences, and results and gradients in float32 on rt with those. The
// error names the tensor that is wrong.
func Check(ctx context.Context, exact, rt compute.Runtime, p Problem) (Report, error) {
	model, names, err := p.model()
	if err != nil {
		return Report{}, err
	}
	double, err := Double(model)
	if err != nil {
		return Report{}, err
	}
	wide, err := Open(exact, double, p.Sizes)
	if err != nil {
		return Report{}, fmt.Errorf("float64 on %s: %w", exact.Name(), err)
	}
	defer wide.Close()
	random := rand.New(rand.NewPCG(p.Seed, 1))
	in, err := wide.Fill(random, p.Values)
	if err != nil {
		return Report{}, err
	}
	want, err := wide.Run(ctx, in)
	if err != nil {
		return Report{}, fmt.Errorf("float64 on %s: %w", exact.Name(), err)
	}
	var report Report
	c := &checker{ctx: ctx, program: wide, in: in, seeds: names.seeds, random: random, samples: p.Samples}
	for _, name := range names.wrt {
		worst, err := c.gradient(name, want["d "+name])
		report.Difference = max(report.Difference, worst)
		if err != nil {
			return report, err
		}
	}
	report.Narrow, err = compareNarrow(ctx, rt, model, p.Sizes, in, want)
	return report, err
}

// problemNames are names in the model of a problem.
type problemNames struct {
	seeds map[string]string // by the output they belong to
	wrt   []string          // the gradient of x is "d x"
}

// model is the function with its gradients.
func (p *Problem) model() (*onnx.Model, problemNames, error) {
	names := problemNames{seeds: map[string]string{}}
	model, err := graph.Build(func(g *graph.Graph) {
		outputs, wrt := p.Build(g)
		seeds := make([]*graph.Value, len(outputs))
		for i, y := range outputs {
			seed, out := fmt.Sprintf("seed %d", i), fmt.Sprintf("output %d", i)
			names.seeds[out] = seed
			seeds[i] = g.Input(seed, y.DType(), y.Shape()...)
			g.Output(out, y)
		}
		for i, dx := range grad.Of(g, outputs, seeds, wrt) {
			if dx == nil {
				panic(&graph.Error{Op: "gradcheck", Message: fmt.Sprintf("no output depends on %s", wrt[i])})
			}
			names.wrt = append(names.wrt, wrt[i].Name())
			g.Output("d "+wrt[i].Name(), dx.Dims(wrt[i].Shape()...))
		}
	})
	return model, names, err
}

// checker varies inputs of one program.
type checker struct {
	ctx     context.Context
	program *Program
	in      Values
	seeds   map[string]string
	random  *rand.Rand
	samples int
}

// gradient compares the gradient of one input with differences: in a random
// direction, and along some of its axes.
func (c *checker) gradient(name string, dx []float64) (worst float64, err error) {
	direction := make([]float64, len(dx))
	slope, scale := 0.0, magnitude(dx)
	for i, d := range dx {
		direction[i] = c.random.NormFloat64()
		slope += d * direction[i]
	}
	got, err := c.difference(name, func(x []float64, h float64) {
		for i, v := range direction {
			x[i] += h * v
		}
	})
	if err != nil {
		return 0, err
	}
	if worst = math.Abs(slope-got) / (scale * math.Sqrt(float64(len(dx)))); !(worst <= DifferenceBound) {
		return worst, fmt.Errorf("gradient of %s: slope in a random direction is %v, differences give %v", name, slope, got)
	}
	samples := c.samples
	if samples == 0 {
		samples = 16
	}
	for n, i := range c.random.Perm(len(dx)) {
		if n == samples {
			break
		}
		got, err := c.difference(name, func(x []float64, h float64) { x[i] += h })
		if err != nil {
			return worst, err
		}
		e := math.Abs(dx[i]-got) / scale
		if worst = max(worst, e); !(e <= DifferenceBound) {
			return worst, fmt.Errorf("gradient of %s: element %d is %v, differences give %v", name, i, dx[i], got)
		}
	}
	return worst, nil
}

// difference is the central difference of the function as vary moves one
// input by h.
func (c *checker) difference(name string, vary func(x []float64, h float64)) (float64, error) {
	const h = 1e-5
	var f [2]float64
	for i, step := range []float64{-h, h} {
		in := maps.Clone(c.in)
		x := append([]float64{}, in[name]...)
		vary(x, step)
		in[name] = x
		out, err := c.program.Run(c.ctx, in)
		if err != nil {
			return 0, err
		}
		for y, seed := range c.seeds {
			for j, v := range out[y] {
				f[i] += v * in[seed][j]
			}
		}
	}
	return (f[1] - f[0]) / (2 * h), nil
}

// compareNarrow runs the float32 model and compares all outputs.
func compareNarrow(ctx context.Context, rt compute.Runtime, m *onnx.Model, sizes map[string]int, in, want Values) (worst float64, err error) {
	narrow, err := Open(rt, m, sizes)
	if err != nil {
		return 0, fmt.Errorf("float32 on %s: %w", rt.Name(), err)
	}
	defer narrow.Close()
	got, err := narrow.Run(ctx, in)
	if err != nil {
		return 0, fmt.Errorf("float32 on %s: %w", rt.Name(), err)
	}
	for _, port := range narrow.outputs {
		e, err := Compare(port.name, got[port.name], want[port.name], NarrowBound)
		if worst = max(worst, e); err != nil {
			return worst, fmt.Errorf("float32 on %s: %w", rt.Name(), err)
		}
	}
	return worst, nil
}

// Compare is the largest difference of two tensors relative to the largest
// element of want; above the bound it is also an error.
func Compare(name string, got, want []float64, bound float64) (worst float64, err error) {
	if len(got) != len(want) {
		return math.Inf(1), fmt.Errorf("%s has %d elements, want %d", name, len(got), len(want))
	}
	scale, at := magnitude(want), 0
	for i, w := range want {
		e := math.Abs(got[i]-w) / scale
		if math.IsNaN(e) {
			e = math.Inf(1)
		}
		if e > worst {
			worst, at = e, i
		}
	}
	if worst > bound {
		return worst, fmt.Errorf("%s: element %d is %v, want %v", name, at, got[at], want[at])
	}
	return worst, nil
}

// magnitude is the largest absolute value, at least so much that rounding in
// the function does not count where a gradient is 0.
func magnitude(v []float64) float64 {
	m := 1e-4
	for _, x := range v {
		m = max(m, math.Abs(x))
	}
	return m
}
