package exec

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"athanor/engine"
	"athanor/engine/family/decoder"
	"athanor/engine/peft"
)

// Bounds of what can be trained.
const (
	maxRank  = 128
	maxAlpha = 1 << 20 // as in files
)

// paramLoRA stands before the names of the parameters that are refused.
const paramLoRA = "training_type.lora_"

// adapter is the low-rank change of one linear module.
type adapter struct {
	linear decoder.Linear
	rank   int
	alpha  float64
	scale  float64
}

// suffixes of the parameters of a module.
const (
	suffixA = ".lora_A"
	suffixB = ".lora_B"
)

// openAdapters makes the trainable pairs, layer by layer.
func (e *Executor) openAdapters() error {
	if p := e.dropout(); !(p >= 0 && p < 1) {
		return &engine.RequestError{Param: paramLoRA + "dropout", Message: fmt.Sprintf("dropout %g is not at least 0 and below 1", p)}
	}
	start, err := e.startAdapter()
	if err != nil {
		return err
	}
	for i := range e.d.Layers {
		for _, l := range e.d.Linears() {
			name := layerPrefix(i) + l.Name
			m := start.Modules[name]
			if m == nil {
				continue
			}
			e.adapters[name] = &adapter{linear: l, rank: m.Rank, alpha: m.Alpha, scale: start.Config.Scale(m)}
			a, err := e.addParam(i, name+suffixA, name+suffixA, []int{m.Rank, l.In})
			if err != nil {
				return err
			}
			values := floats(a.Value)
			if m.A == nil {
				e.fill(values, name, l.In)
			} else {
				copy(values, m.A)
			}
			b, err := e.addParam(i, name+suffixB, name+suffixB, []int{l.Out, m.Rank})
			if err != nil {
				return err
			}
			copy(floats(b.Value), m.B)
		}
	}
	return nil
}

// fill draws the first matrix of a fresh module as PEFT does: uniform within
// one over the root of the inputs. Each module has numbers of its own.
func (e *Executor) fill(values []float32, name string, in int) {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(e.cfg.Seed, h.Sum64()))
	bound := 1 / math.Sqrt(float64(in))
	for i := range values {
		values[i] = float32((2*r.Float64() - 1) * bound)
	}
}

// startAdapter is the adapter to start from, checked against the model. The
// modules of a fresh one have sizes but no values.
func (e *Executor) startAdapter() (*peft.Adapter, error) {
	if e.cfg.Adapter != nil {
		return e.cfg.Adapter, e.checkAdapter(e.cfg.Adapter)
	}
	want := e.cfg.LoRA
	if want.Rank < 1 || want.Rank > maxRank {
		return nil, &engine.RequestError{Param: paramLoRA + "r", Message: fmt.Sprintf("rank %d is not from 1 to %d", want.Rank, maxRank)}
	}
	if !(want.Alpha > 0 && want.Alpha <= maxAlpha) {
		return nil, &engine.RequestError{Param: paramLoRA + "alpha", Message: fmt.Sprintf("alpha %g is not above 0 and at most %d", want.Alpha, maxAlpha)}
	}
	modules, err := e.pickModules(want.Modules)
	if err != nil {
		return nil, err
	}
	a := &peft.Adapter{
		Config:  peft.Config{Rank: want.Rank, Alpha: want.Alpha, Dropout: want.Dropout},
		Modules: map[string]*peft.Module{},
	}
	for i := range e.d.Layers {
		for _, l := range modules {
			a.Modules[layerPrefix(i)+l.Name] = &peft.Module{In: l.In, Out: l.Out, Rank: want.Rank, Alpha: want.Alpha}
		}
	}
	return a, nil
}

// pickModules finds modules by their last name; none means all.
func (e *Executor) pickModules(names []string) ([]decoder.Linear, error) {
	all := e.d.Linears()
	if len(names) == 0 {
		return all, nil
	}
	var known, unknown []string
	for _, l := range all {
		known = append(known, lastName(l.Name))
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		return nil, &engine.RequestError{Param: paramLoRA + "trainable_modules", Message: fmt.Sprintf(
			"the model has no linear module %s; it has %s", strings.Join(unknown, ", "), strings.Join(known, ", "))}
	}
	return slices.DeleteFunc(all, func(l decoder.Linear) bool { return !slices.Contains(names, lastName(l.Name)) }), nil
}

func (e *Executor) checkAdapter(a *peft.Adapter) error {
	sizes := map[string]decoder.Linear{}
	for i := range e.d.Layers {
		for _, l := range e.d.Linears() {
			sizes[layerPrefix(i)+l.Name] = l
		}
	}
	if len(a.Modules) == 0 {
		return fmt.Errorf("the adapter changes no module")
	}
	for name, m := range a.Modules {
		l, ok := sizes[name]
		if !ok {
			return fmt.Errorf("the adapter changes module %q, which the model does not have", name)
		}
		if err := m.Check(); err != nil {
			return fmt.Errorf("adapter, %s: %w", name, err)
		}
		if m.In != l.In || m.Out != l.Out || m.Rank > maxRank {
			return fmt.Errorf("adapter, %s: it is %d x %d of rank %d, the model has %d x %d and ranks go to %d",
				name, m.Out, m.In, m.Rank, l.Out, l.In, maxRank)
		}
	}
	return nil
}

// dropout is the share of the adapters' inputs that a training pass takes away.
func (e *Executor) dropout() float64 {
	switch {
	case e.cfg.LoRA != nil:
		return e.cfg.LoRA.Dropout
	case e.cfg.Adapter != nil:
		return e.cfg.Adapter.Config.Dropout
	}
	return 0
}

// Adapter is the trained change as it is now, in memory of its own; nil when
// all weights are trained.
func (e *Executor) Adapter() *peft.Adapter {
	if e.full() {
		return nil
	}
	out := &peft.Adapter{Modules: map[string]*peft.Module{}}
	if e.cfg.Adapter != nil {
		out.Config = e.cfg.Adapter.Config
	} else {
		out.Config = peft.Config{Rank: e.cfg.LoRA.Rank, Alpha: e.cfg.LoRA.Alpha}
	}
	out.Config.Dropout = e.dropout()
	names := map[string]bool{}
	for name, a := range e.adapters {
		names[lastName(name)] = true
		out.Modules[name] = &peft.Module{
			In: a.linear.In, Out: a.linear.Out, Rank: a.rank, Alpha: a.alpha,
			A: slices.Clone(floats(e.params[e.byName[name+suffixA]].Value)),
			B: slices.Clone(floats(e.params[e.byName[name+suffixB]].Value)),
		}
	}
	out.Config.Modules = nil
	for n := range names {
		out.Config.Modules = append(out.Config.Modules, n)
	}
	slices.Sort(out.Config.Modules)
	return out
}

func lastName(module string) string { return module[strings.LastIndexByte(module, '.')+1:] }
