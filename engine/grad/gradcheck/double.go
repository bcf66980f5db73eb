package gradcheck

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"athanor/engine/onnx"
)

// Double is a float64 model that computes what a float32 model does: inputs,
// outputs, weights and casts become float64. Data in external files is
// refused. Dequantized weights keep their float32 arithmetic, which ONNX has in
// no other type, and are widened.
func Double(m *onnx.Model) (*onnx.Model, error) {
	old := m.Graph
	g := &onnx.Graph{Name: old.Name, Inputs: doubleInfos(old.Inputs), Outputs: doubleInfos(old.Outputs), Values: doubleInfos(old.Values)}
	for _, t := range old.Initializers {
		wide, err := doubleTensor(t)
		if err != nil {
			return nil, err
		}
		g.Initializers = append(g.Initializers, wide)
	}
	for _, n := range old.Nodes {
		nodes, err := doubleNode(n)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
		g.Nodes = append(g.Nodes, nodes...)
	}
	wide := *m
	wide.Graph = g
	return &wide, nil
}

func doubleInfos(list []onnx.ValueInfo) []onnx.ValueInfo {
	list = slices.Clone(list)
	for i := range list {
		list[i].Type = doubleType(list[i].Type)
	}
	return list
}

func doubleType(t onnx.DataType) onnx.DataType {
	if t == onnx.Float {
		return onnx.Double
	}
	return t
}

func doubleTensor(t *onnx.Tensor) (*onnx.Tensor, error) {
	if t.External != nil {
		return nil, fmt.Errorf("weight %s lies in an external file", t.Name)
	}
	if t.Type != onnx.Float {
		return t, nil
	}
	wide := *t
	wide.Type, wide.Raw = onnx.Double, nil
	for b := range slices.Chunk(t.Raw, 4) {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		wide.Raw = binary.LittleEndian.AppendUint64(wide.Raw, math.Float64bits(v))
	}
	return &wide, nil
}

func doubleNode(n *onnx.Node) ([]*onnx.Node, error) {
	wide := *n
	wide.Attributes = slices.Clone(n.Attributes)
	for i, a := range wide.Attributes {
		if n.OpType == "Cast" && a.Name == "to" {
			wide.Attributes[i].I = int64(doubleType(onnx.DataType(a.I)))
		}
		if a.T != nil {
			t, err := doubleTensor(a.T)
			if err != nil {
				return nil, err
			}
			wide.Attributes[i].T = t
		}
	}
	if n.OpType != "DequantizeLinear" {
		return []*onnx.Node{&wide}, nil
	}
	scales, result := n.Inputs[1]+"/narrow/"+n.Name, n.Outputs[0]+"/narrow"
	wide.Inputs, wide.Outputs = slices.Clone(n.Inputs), []string{result}
	wide.Inputs[1] = scales
	return []*onnx.Node{castNode(n.Inputs[1], scales, onnx.Float), &wide, castNode(result, n.Outputs[0], onnx.Double)}, nil
}

func castNode(from, to string, t onnx.DataType) *onnx.Node {
	return &onnx.Node{
		Name: "cast " + to, OpType: "Cast", Inputs: []string{from}, Outputs: []string{to},
		Attributes: []onnx.Attribute{{Name: "to", Type: onnx.AttrInt, I: int64(t)}},
	}
}
