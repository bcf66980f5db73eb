package refexec_test

import (
	"errors"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/refexec"
)

func TestConformance(t *testing.T) { computetest.Conformance(t, refexec.New()) }

func TestUnknownOperatorIsNamed(t *testing.T) {
	m := computetest.Model(&onnx.Graph{Nodes: []*onnx.Node{computetest.Node("com.microsoft::PagedAttention", nil, []string{"y"})}})
	_, err := refexec.New().Compile(m, compute.Options{})
	if !errors.Is(err, refexec.ErrUnknownOperator) || !strings.Contains(err.Error(), "com.microsoft::PagedAttention") {
		t.Errorf("got %v", err)
	}
}
