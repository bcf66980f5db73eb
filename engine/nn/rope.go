package nn

import (
	"math"

	"athanor/engine/graph"
	"athanor/engine/tensor"
)

// Rope describes rotary positions: channel pair i of a head turns by
// position * frequency i. (Su and others 2021, arXiv:2104.09864.) Pairs are
// channels i and i + Dim/2, as Hugging Face checkpoints have them.
type Rope struct {
	Theta float64 // base of the frequencies
	Dim   int     // channels that turn, even
	// Scaling stretches a model to longer texts; the zero value does nothing.
	Scaling RopeScaling
}

// RopeScaling changes the frequencies of a Rope.
type RopeScaling struct {
	Kind   ScalingKind
	Factor float64
	// For Llama3: pairs that turn fewer than Low times within Original
	// positions are slowed by Factor, those that turn more than High times are
	// kept, those between are blended.
	Low, High float64
	Original  int
}

// ScalingKind names a scaling rule.
type ScalingKind string

// The scaling rules.
const (
	NoScaling     ScalingKind = ""
	LinearScaling ScalingKind = "linear" // every frequency divided by Factor
	Llama3Scaling ScalingKind = "llama3"
)

// Frequencies are the Dim/2 angles, in radians, by which the pairs turn from
// one position to the next.
func (r Rope) Frequencies() []float64 {
	f := make([]float64, r.Dim/2)
	for i := range f {
		f[i] = r.Scaling.apply(math.Pow(r.Theta, -2*float64(i)/float64(r.Dim)))
	}
	return f
}

func (s RopeScaling) apply(f float64) float64 {
	switch s.Kind {
	case LinearScaling:
		return f / s.Factor
	case Llama3Scaling:
		turns := float64(s.Original) * f / (2 * math.Pi)
		keep := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
		return keep*f + (1-keep)*f/s.Factor
	}
	return f
}

// Row fills cos and sin, each Dim/2 long, for one position. Angles are
// computed in float64.
func (r Rope) Row(frequencies []float64, position int, cos, sin []float32) {
	for i, f := range frequencies {
		s, c := math.Sincos(float64(position) * f)
		cos[i], sin[i] = float32(c), float32(s)
	}
}

// Rotation turns queries and keys to their positions. It is made once and
// used by every layer.
type Rotation struct {
	// fused: cos and sin are tables [M, D/2] for the attention kernel.
	// Otherwise they are the rows of this step, [B, S, 1, D/2].
	fused    bool
	cos, sin *graph.Value
}

// fusedMultiple is what the attention kernel of ONNX Runtime wants the size of
// a head to be a multiple of, to rotate inside.
const fusedMultiple = 16

// NewRotation prepares tables [M, D/2] for heads of size D. ids is any value
// [B, S, ...]; last, int32 [B], is the total length of each row minus one.
func NewRotation(g *graph.Graph, cos, sin, ids, last *graph.Value) Rotation {
	half, ok := cos.Dim(1).Size()
	if ok && 2*half%fusedMultiple == 0 {
		return Rotation{fused: true, cos: cos, sin: sin}
	}
	batch, steps := ids.Dim(0), ids.Dim(1)
	// First position of this step: last + 1 - S, but 0 for the shorter rows of
	// a first prompt, which are padded on the right.
	past := g.Sub(g.Add(g.Cast(last, tensor.I64), g.Int64(1)), g.Length(ids, 1)) // [B]
	past = g.Unsqueeze(g.Max(past, g.Int64(0)), 1)                               // [B, 1]
	positions := g.Add(past, g.Range(ids, 1)).Dims(batch, steps)
	row := []graph.Dim{batch, steps, graph.Fixed(1), graph.Fixed(half)}
	return Rotation{
		cos: g.Unsqueeze(g.Gather(cos, positions), 2).Dims(row...),
		sin: g.Unsqueeze(g.Gather(sin, positions), 2).Dims(row...),
	}
}

// turn rotates x [B, S, N, D] explicitly.
func (r Rotation) turn(g *graph.Graph, x *graph.Value) *graph.Value {
	half, _ := r.cos.Dim(-1).Size()
	parts := g.Split(x, 3, half, half) // [B, S, N, D/2] twice
	a, b := parts[0], parts[1]
	return g.Concat(3,
		g.Sub(g.Mul(a, r.cos), g.Mul(b, r.sin)),
		g.Add(g.Mul(b, r.cos), g.Mul(a, r.sin)))
}
