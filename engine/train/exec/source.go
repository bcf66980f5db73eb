package exec

import (
	"fmt"
	"strings"

	"athanor/engine/compute"
	"athanor/engine/family/decoder"
	"athanor/engine/graph"
	"athanor/engine/nn"
	"athanor/engine/tensor"
)

// Symbols of the programs. Rows of activations are counted by symT.
var (
	symB = graph.Symbol("B")
	symS = graph.Symbol("S")
	symC = graph.Symbol("C")
	symT = graph.Product(symB, symS)
)

// Inputs of the layers.
const (
	inX    = "x"
	inCos  = "cos"
	inSin  = "sin"
	inMask = "mask"
)

// source gives the weights of one layer to a graph, as inputs. It implements
// decoder.Source.
type source struct {
	e       *Executor
	layer   int
	prefix  string // before the names of inputs, "" where one layer has a program of its own
	dropout bool

	train []trained // in the order of their inputs
	keep  map[string]*graph.Value
}

// trained is a trainable input of a graph.
type trained struct {
	name  string // of the input
	value *graph.Value
}

// Weight declares a weight.
func (s *source) Weight(g *graph.Graph, part string, _ ...int) *graph.Value {
	v := s.e.base[layerPrefix(s.layer)+part].declare(g, s.prefix+part)
	if s.e.full() {
		s.train = append(s.train, trained{s.prefix + part, v})
	}
	return v
}

// LowRank declares the adapter of a module.
func (s *source) LowRank(g *graph.Graph, l decoder.Linear) *nn.LowRank {
	a := s.e.adapters[layerPrefix(s.layer)+l.Name]
	if a == nil {
		return nil
	}
	pair := &nn.LowRank{
		A:     g.Input(s.prefix+l.Name+suffixA, tensor.F32, graph.Fixed(a.rank), graph.Fixed(l.In)),
		B:     g.Input(s.prefix+l.Name+suffixB, tensor.F32, graph.Fixed(l.Out), graph.Fixed(a.rank)),
		Scale: a.scale,
	}
	s.train = append(s.train, trained{s.prefix + l.Name + suffixA, pair.A}, trained{s.prefix + l.Name + suffixB, pair.B})
	if s.dropout {
		pair.Keep = s.mask(g, l)
	}
	return pair
}

// mask is what dropout leaves of the input of a module. Modules that read the
// same input share it.
func (s *source) mask(g *graph.Graph, l decoder.Linear) *graph.Value {
	site := dropoutSite(l.Name)
	if v := s.keep[site]; v != nil {
		return v
	}
	kept := g.Cast(g.Input(s.prefix+site, tensor.U8, symT, graph.Fixed(l.In)), tensor.F32)
	v := g.Mul(kept, g.Scalar(1/(1-s.e.dropout()), tensor.F32))
	if s.keep == nil {
		s.keep = map[string]*graph.Value{}
	}
	s.keep[site] = v
	return v
}

// signature tells layers apart whose programs differ.
func (e *Executor) signature(layer int) string {
	var b strings.Builder
	p := layerPrefix(layer)
	for _, l := range e.d.Linears() {
		b.WriteString(e.base[p+l.Name+".weight"].kind())
		if a := e.adapters[p+l.Name]; a != nil {
			fmt.Fprintf(&b, ":%d*%v", a.rank, a.scale)
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// bindLayer names the buffers of the weights of a layer by their parts.
func (e *Executor) bindLayer(layer int) map[string]compute.Buffer {
	p, to := layerPrefix(layer), map[string]compute.Buffer{}
	for name, s := range e.base {
		if part, ok := strings.CutPrefix(name, p); ok {
			s.bind(part, to)
		}
	}
	for name := range e.adapters {
		if part, ok := strings.CutPrefix(name, p); ok {
			to[part+suffixA] = e.params[e.byName[name+suffixA]].Value
			to[part+suffixB] = e.params[e.byName[name+suffixB]].Value
		}
	}
	return to
}

// places declares where the positions stand.
func (e *Executor) places(g *graph.Graph) nn.Places {
	one, half := graph.Fixed(1), graph.Fixed(e.d.HeadDim/2)
	return nn.Places{
		Cos:  g.Input(inCos, tensor.F32, symB, symS, one, half),
		Sin:  g.Input(inSin, tensor.F32, symB, symS, one, half),
		Mask: g.Input(inMask, tensor.F32, symB, one, one, symS, symS),
	}
}
