package graph

import (
	"slices"

	"athanor/engine/onnx"
)

// Node is a node of the graph as automatic differentiation sees it. The lists
// belong to the graph: read only.
type Node struct {
	Name, Op, Domain string
	Inputs, Outputs  []*Value // nil where omitted
	Attributes       []onnx.Attribute
	Stop             bool // made by StopGradient
}

// Nodes are the nodes so far, each after those whose results it uses.
func (g *Graph) Nodes() []Node {
	list := make([]Node, len(g.b.nodes))
	for i, n := range g.b.nodes {
		list[i] = Node{Name: n.name, Op: n.op, Domain: n.domain, Inputs: n.inputs, Outputs: n.outputs, Attributes: n.attributes, Stop: n.stop}
	}
	return list
}

// Int is an integer attribute, 0 where it is not set.
func (n Node) Int(name string) int {
	i := slices.IndexFunc(n.Attributes, func(a onnx.Attribute) bool { return a.Name == name })
	if i < 0 {
		return 0
	}
	return int(n.Attributes[i].I)
}

// Ints is an attribute that is a list of integers, nil where it is not set.
func (n Node) Ints(name string) []int {
	var list []int
	for _, a := range n.Attributes {
		if a.Name == name {
			for _, v := range a.Ints {
				list = append(list, int(v))
			}
		}
	}
	return list
}
