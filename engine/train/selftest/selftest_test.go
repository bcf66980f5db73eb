package selftest_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/train/selftest"
)

func TestRun(t *testing.T) {
	for _, rt := range []compute.Runtime{refexec.New(), orttest.Open(t)} {
		if err := selftest.Run(t.Context(), rt); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	rt := orttest.Open(b)
	for b.Loop() {
		if err := selftest.Run(b.Context(), rt); err != nil {
			b.Fatal(err)
		}
	}
}

// broken is a runtime whose kernel of one operator gives a tenth too much.
type broken struct {
	compute.Runtime
	op    string
	found map[string]bool // operators, and whether they have results in float32
}

func (r broken) Compile(m *onnx.Model, opt compute.Options) (compute.Program, error) {
	const factor = "f32[1.1]"
	copied, graph := *m, *m.Graph
	copied.Graph, graph.Nodes = &graph, nil
	graph.Initializers = append(slices.Clone(graph.Initializers), &onnx.Tensor{Name: factor, Type: onnx.Float, Raw: []byte{0xcd, 0xcc, 0x8c, 0x3f}})
	integers := map[string]bool{}
	for _, t := range m.Graph.Initializers {
		integers[t.Name] = t.Type == onnx.Int64
	}
	for _, in := range m.Graph.Inputs {
		integers[in.Name] = in.Type == onnx.Int64
	}
	for _, n := range m.Graph.Nodes {
		integers[n.Outputs[0]] = integers[n.Inputs[0]] || n.OpType == "Shape"
		other := integers[n.Outputs[0]] || n.OpType == "Equal" || n.OpType == "LessOrEqual"
		r.found[n.OpType] = r.found[n.OpType] || !other
		if n.OpType != r.op || other {
			graph.Nodes = append(graph.Nodes, n)
			continue
		}
		wrong := *n
		wrong.Outputs = slices.Clone(n.Outputs)
		wrong.Outputs[0] += "/right"
		graph.Nodes = append(graph.Nodes, &wrong, &onnx.Node{OpType: "Mul", Inputs: []string{wrong.Outputs[0], factor}, Outputs: n.Outputs[:1]})
	}
	return r.Runtime.Compile(&copied, opt)
}

// TestWrongKernelsAreNamed breaks one operator after the other.
func TestWrongKernelsAreNamed(t *testing.T) {
	found := map[string]bool{}
	if err := selftest.Run(t.Context(), broken{refexec.New(), "", found}); err != nil {
		t.Fatal(err)
	}
	for _, op := range slices.Sorted(maps.Keys(found)) {
		// What is taken away from all logits of a row does not matter.
		if !found[op] || op == "ReduceMax" || op == "Identity" {
			continue
		}
		err := selftest.Run(t.Context(), broken{refexec.New(), op, map[string]bool{}})
		if !errors.Is(err, selftest.ErrWrong) || !strings.Contains(err.Error(), " ("+op+"):") {
			t.Errorf("%s: %v", op, err)
		}
	}
}
