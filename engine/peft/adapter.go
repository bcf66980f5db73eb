package peft

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Config is what adapter_config.json says.
type Config struct {
	BaseModel string // name of the model that it belongs to
	Rank      int
	Alpha     float64
	Dropout   float64
	RSLoRA    bool     // scale by the square root of the rank (arXiv:2312.03732)
	Modules   []string // last parts of the names of the changed modules, sorted: q_proj
}

// Adapter is a low-rank change of some linear modules: W + Scale * B A.
type Adapter struct {
	Config  Config
	Modules map[string]*Module // by canonical name
}

// Module is the change of one linear module [Out, In].
type Module struct {
	In, Out, Rank int
	Alpha         float64
	A             []float32 // [Rank, In]
	B             []float32 // [Out, Rank]
}

// Scale is the factor of B A.
func (c Config) Scale(m *Module) float64 {
	if c.RSLoRA {
		return m.Alpha / math.Sqrt(float64(m.Rank))
	}
	return m.Alpha / float64(m.Rank)
}

// Check compares the sizes of a module with its values.
func (m *Module) Check() error {
	if m.In < 1 || m.Out < 1 || m.Rank < 1 || len(m.A) != m.Rank*m.In || len(m.B) != m.Out*m.Rank {
		return fmt.Errorf("a module of %d x %d with rank %d has %d and %d values", m.Out, m.In, m.Rank, len(m.A), len(m.B))
	}
	return nil
}

// CheckBase compares the modules with those of a base model. linear gives the
// sizes of one of its linear modules by canonical name; ok is false where it
// has none of that name.
func (a *Adapter) CheckBase(linear func(name string) (out, in int, ok bool)) error {
	for _, name := range slices.Sorted(maps.Keys(a.Modules)) {
		m := a.Modules[name]
		out, in, ok := linear(name)
		if !ok {
			return fmt.Errorf("the adapter changes module %q, which the base model does not have", name)
		}
		if m.Out != out || m.In != in {
			return fmt.Errorf("the adapter's module %q is %d x %d, the base model's is %d x %d", name, m.Out, m.In, out, in)
		}
	}
	return nil
}

// MaxRank is the largest rank of the modules.
func (a *Adapter) MaxRank() int {
	r := 0
	for _, m := range a.Modules {
		r = max(r, m.Rank)
	}
	return r
}
