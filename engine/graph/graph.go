package graph

import (
	"fmt"

	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Graph is a model under construction, seen from one scope of names.
type Graph struct {
	b     *builder
	scope string
}

// builder holds what all scopes share.
type builder struct {
	nodes        []*node
	inputs       []*Value
	outputs      []*Value
	initializers []*onnx.Tensor
	names        map[string]bool   // of inputs, outputs and weights
	counts       map[string]int    // nodes by scope and operator
	constants    map[string]*Value // by kind and values
	sizes        map[string]*Value // vectors of sizes
}

// node is an onnx.Node whose values may still be renamed.
type node struct {
	name, op, domain string
	inputs, outputs  []*Value // nil where omitted
	attributes       []onnx.Attribute
	stop             bool // no gradient passes
}

// Build calls fn with an empty graph and returns the model that it made. A
// mistake in fn, raised as *Error by the methods of Graph and Value, is
// returned as the error.
func Build(fn func(*Graph)) (model *onnx.Model, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(*Error)
			if !ok {
				panic(p)
			}
			model, err = nil, e
		}
	}()
	b := &builder{names: map[string]bool{}, counts: map[string]int{}, constants: map[string]*Value{}, sizes: map[string]*Value{}}
	fn(&Graph{b: b})
	if len(b.outputs) == 0 {
		fail("Build", "the graph has no output")
	}
	return b.model(), nil
}

// Scope is the same graph with name added to the path of new nodes.
func (g *Graph) Scope(name string) *Graph { return &Graph{g.b, g.scope + name + "/"} }

// Input declares an input of the model. The order of calls is the order of
// the inputs.
func (g *Graph) Input(name string, dtype tensor.DType, shape ...Dim) *Value {
	g.b.claim("Input", name)
	elementType("Input", dtype)
	v := &Value{name: name, dtype: dtype, shape: shape, fixed: true}
	g.b.inputs = append(g.b.inputs, v)
	return v
}

// Output makes v, the result of a node, an output of the model under the given
// name. The order of calls is the order of the outputs.
func (g *Graph) Output(name string, v *Value) {
	if v.fixed {
		fail("Output", "%s cannot be output %q: it is an input, a weight or an output already", v, name)
	}
	g.b.claim("Output", name)
	v.name, v.fixed = name, true
	g.b.outputs = append(g.b.outputs, v)
}

// claim takes a name that the outside sees.
func (b *builder) claim(op, name string) {
	if name == "" || b.names[name] {
		fail(op, "name %q is empty or taken", name)
	}
	b.names[name] = true
}

// result is the type and shape of one output of a node.
type result struct {
	dtype tensor.DType
	shape Shape
}

// add appends a node; a result of type Invalid is an omitted output.
func (g *Graph) add(op, domain string, inputs []*Value, attributes []onnx.Attribute, results ...result) []*Value {
	key := g.scope + op
	g.b.counts[key]++
	n := &node{name: fmt.Sprintf("%s.%d", key, g.b.counts[key]), op: op, domain: domain, inputs: inputs, attributes: attributes}
	for i, r := range results {
		if r.dtype == tensor.Invalid {
			n.outputs = append(n.outputs, nil)
			continue
		}
		name := n.name
		if i > 0 {
			name = fmt.Sprintf("%s:%d", n.name, i)
		}
		n.outputs = append(n.outputs, &Value{name: name, dtype: r.dtype, shape: r.shape})
	}
	g.b.nodes = append(g.b.nodes, n)
	return n.outputs
}

// one appends a node with one output.
func (g *Graph) one(op, domain string, inputs []*Value, attributes []onnx.Attribute, dtype tensor.DType, shape Shape) *Value {
	return g.add(op, domain, inputs, attributes, result{dtype, shape})[0]
}

func (b *builder) model() *onnx.Model {
	graph := &onnx.Graph{Name: "athanor", Initializers: b.initializers}
	for _, n := range b.nodes {
		graph.Nodes = append(graph.Nodes, &onnx.Node{
			Name: n.name, OpType: n.op, Domain: n.domain,
			Inputs: names(n.inputs), Outputs: names(n.outputs), Attributes: n.attributes,
		})
	}
	for _, v := range b.inputs {
		graph.Inputs = append(graph.Inputs, v.info())
	}
	for _, v := range b.outputs {
		graph.Outputs = append(graph.Outputs, v.info())
	}
	return &onnx.Model{
		IRVersion: onnx.IRVersion, Producer: "athanor", Graph: graph,
		Opsets: []onnx.Opset{{Domain: onnx.DomainONNX, Version: onnx.OpsetONNX}, {Domain: onnx.DomainMicrosoft, Version: onnx.OpsetMicrosoft}},
	}
}

func names(values []*Value) []string {
	out := make([]string, len(values))
	for i, v := range values {
		if v != nil {
			out[i] = v.name
		}
	}
	return out
}

func (v *Value) info() onnx.ValueInfo {
	info := onnx.ValueInfo{Name: v.name, Type: elementType("Build", v.dtype)}
	for _, d := range v.shape {
		info.Dims = append(info.Dims, onnx.Dim{Size: int64(d.size), Symbol: d.symbol})
	}
	return info
}

// elementType is the ONNX number of a type.
func elementType(op string, d tensor.DType) onnx.DataType {
	switch d {
	case tensor.F32:
		return onnx.Float
	case tensor.F16:
		return onnx.Float16
	case tensor.BF16:
		return onnx.BFloat16
	case tensor.F64:
		return onnx.Double
	case tensor.I64:
		return onnx.Int64
	case tensor.I32:
		return onnx.Int32
	case tensor.I8:
		return onnx.Int8
	case tensor.U8:
		return onnx.Uint8
	case tensor.Bool:
		return onnx.BoolType
	case tensor.U4:
		return onnx.Uint4
	case tensor.I4:
		return onnx.Int4
	}
	fail(op, "element type %s has no ONNX type", d)
	return 0
}

// Attributes by kind.

func integer(name string, v int) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrInt, I: int64(v)}
}

func float(name string, v float32) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrFloat, F: v}
}

func integers(name string, v ...int) onnx.Attribute {
	a := onnx.Attribute{Name: name, Type: onnx.AttrInts}
	for _, n := range v {
		a.Ints = append(a.Ints, int64(n))
	}
	return a
}

func truth(v bool) int {
	if v {
		return 1
	}
	return 0
}

func text(name, v string) onnx.Attribute {
	return onnx.Attribute{Name: name, Type: onnx.AttrString, S: []byte(v)}
}
