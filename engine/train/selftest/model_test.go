package selftest

import (
	"testing"

	"athanor/engine/grad/gradcheck"
	"athanor/engine/graph"
	"athanor/engine/ort/orttest"
)

// TestModel compares the gradients of the model with finite differences.
func TestModel(t *testing.T) {
	rt := orttest.Open(t)
	report, err := gradcheck.Check(t.Context(), rt, rt, gradcheck.Problem{
		Sizes: sizes, Values: given,
		Build: func(g *graph.Graph) (outputs, wrt []*graph.Value) {
			b := &builder{g: g}
			outputs = b.function()
			return outputs, b.wrt
		},
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("largest relative errors: %.1e of finite differences, %.1e of float32", report.Difference, report.Narrow)
}
