package ort_test

import (
	"syscall"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/tensor"
)

// TestBorrow computes on memory that the runtime did not allocate.
func TestBorrow(t *testing.T) {
	rt := orttest.Open(t)
	page, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(page)
	copy(page, computetest.Bytes([]float32{1, 2, 3, 4}))
	borrower := rt.(compute.Borrower)
	x, err := borrower.Borrow(page[:16], tensor.F32, 4)
	if err != nil {
		t.Fatal(err)
	}
	p := computetest.MustCompile(t, rt, computetest.Model(&onnx.Graph{
		Nodes:  []*onnx.Node{computetest.Node("Neg", []string{"x"}, []string{"y"})},
		Inputs: []onnx.ValueInfo{computetest.Value("x", onnx.Float, 4)}, Outputs: []onnx.ValueInfo{computetest.Value("y", onnx.Float, 4)},
	}), compute.Options{Threads: 1})
	y := computetest.MustNew(t, rt, tensor.F32, 4)
	if err := p.Run(t.Context(), []compute.Buffer{x}, []compute.Buffer{y}); err != nil {
		t.Fatal(err)
	}
	computetest.Close(t, "y", computetest.Floats(y), []float32{-1, -2, -3, -4}, 0)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if page[0] = 7; page[0] != 7 {
		t.Error("the memory is gone")
	}
	for name, data := range map[string][]byte{"short": page[:12], "long": page[:20], "not aligned": page[1:17]} {
		if b, err := borrower.Borrow(data, tensor.F32, 4); err == nil {
			b.Close()
			t.Errorf("%s: no error", name)
		}
	}
}
