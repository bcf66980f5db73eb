package exec

import (
	"slices"

	"athanor/engine/graph"
	"athanor/engine/onnx"
)

// divided is a layer whose forward run leaves what its backward run needs.
type divided struct {
	forward, back *program
	kept          []kept
}

// kept is a value that goes from the forward to the backward run.
type kept struct {
	name  string
	shape graph.Shape
}

// divide cuts a model behind its first n nodes. The first part hands results of
// matrix products and of softmax on; whatever else the second part needs of the
// first it computes again, which costs little. nodes are those of the model.
func divide(m *onnx.Model, nodes []graph.Node, n int) (forward, back *onnx.Model, list []kept) {
	producer := map[string]int{}
	for i, node := range nodes[:n] {
		for _, v := range node.Outputs {
			if v != nil {
				producer[v.Name()] = i
			}
		}
	}
	again, names := make([]bool, n), map[string]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		if v == nil {
			return
		}
		i, ok := producer[v.Name()]
		switch {
		case !ok || again[i] || names[v.Name()]:
		case costly(nodes, producer, i):
			names[v.Name()] = true
			list = append(list, kept{v.Name(), v.Shape()})
		default:
			again[i] = true
			for _, in := range nodes[i].Inputs {
				visit(in)
			}
		}
	}
	for _, node := range nodes[n:] {
		for _, v := range node.Inputs {
			visit(v)
		}
	}
	first, second := *m.Graph, *m.Graph
	first.Nodes, second.Nodes = slices.Clone(m.Graph.Nodes[:n]), nil
	first.Outputs, second.Outputs = nil, nil
	for _, o := range m.Graph.Outputs {
		if _, ok := producer[o.Name]; ok {
			first.Outputs = append(first.Outputs, o)
		} else {
			second.Outputs = append(second.Outputs, o)
		}
	}
	second.Inputs = slices.Clone(m.Graph.Inputs)
	for _, k := range list {
		info := onnx.ValueInfo{Name: k.name, Type: onnx.Float}
		for _, d := range k.shape {
			size, fixed := d.Size()
			if dim := (onnx.Dim{Size: int64(size)}); fixed {
				info.Dims = append(info.Dims, dim)
			} else {
				info.Dims = append(info.Dims, onnx.Dim{Symbol: d.String()})
			}
		}
		first.Outputs, second.Inputs = append(first.Outputs, info), append(second.Inputs, info)
	}
	for i, node := range m.Graph.Nodes {
		if i >= n || again[i] {
			second.Nodes = append(second.Nodes, node)
		}
	}
	forward, back = &onnx.Model{}, &onnx.Model{}
	*forward, *back = *m, *m
	forward.Graph, back.Graph = &first, &second
	return forward, back, list
}

// costly says whether the result of a node is handed on: products, softmax, and
// the sum of a product and what is added to it, which takes the place of both.
func costly(nodes []graph.Node, producer map[string]int, i int) bool {
	switch nodes[i].Op {
	case "Gemm", "MatMul", "Softmax":
		return true
	case "Add":
		return slices.ContainsFunc(nodes[i].Inputs, func(v *graph.Value) bool {
			from, ok := producer[v.Name()]
			return ok && nodes[from].Op == "Gemm"
		})
	}
	return false
}

// dividedLayer is the pair of programs of a layer that is not computed again.
func (e *Executor) dividedLayer(layer int, k layerKind, dropout bool) (*divided, error) {
	key := layerKey(e, layer, k, dropout) + " divided"
	if p := e.divided[key]; p != nil {
		return p, nil
	}
	d := &divided{}
	var nodes []graph.Node
	n := 0
	model, err := graph.Build(func(g *graph.Graph) {
		n = e.buildLayer(g, layer, k, dropout)
		nodes = g.Nodes()
	})
	if err != nil {
		return nil, err
	}
	forward, back, list := divide(model, nodes, n)
	d.kept = list
	if d.forward, err = e.compile(key+" forward", forward); err != nil {
		return nil, err
	}
	if d.back, err = e.compile(key+" back", back); err != nil {
		return nil, err
	}
	e.divided[key] = d
	return d, nil
}
