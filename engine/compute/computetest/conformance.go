package computetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Conformance checks what every compute.Runtime promises. The runtime is not
// closed.
func Conformance(t *testing.T, rt compute.Runtime) {
	t.Run("Buffer", func(t *testing.T) { buffers(t, rt) })
	t.Run("View", func(t *testing.T) { views(t, rt) })
	t.Run("Ports", func(t *testing.T) { ports(t, rt) })
	t.Run("Run", func(t *testing.T) { runs(t, rt) })
	t.Run("RunRefuses", func(t *testing.T) { refusals(t, rt) })
	t.Run("InPlace", func(t *testing.T) { inPlace(t, rt) })
	t.Run("Cancelled", func(t *testing.T) { cancelled(t, rt) })
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, rt) })
	t.Run("Compile", func(t *testing.T) { compiles(t, rt) })
}

func buffers(t *testing.T, rt compute.Runtime) {
	for _, shape := range [][]int{{}, {0}, {3}, {2, 0, 4}, {300, 1000}} {
		b := MustNew(t, rt, tensor.F32, shape...)
		n := 4
		for _, d := range shape {
			n *= d
		}
		if len(b.Bytes()) != n || len(b.Shape()) != len(shape) || b.DType() != tensor.F32 {
			t.Errorf("shape %v: got %v, %d bytes of %s", shape, b.Shape(), len(b.Bytes()), b.DType())
		}
		if bytes.ContainsFunc(b.Bytes(), func(r rune) bool { return r != 0 }) {
			t.Errorf("shape %v: not zeroed", shape)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if _, err := b.View(0); !errors.Is(err, compute.ErrClosed) || b.Bytes() != nil {
			t.Errorf("after Close: got %v and %d bytes", err, len(b.Bytes()))
		}
	}
	for name, c := range map[string]struct {
		d     tensor.DType
		shape []int
	}{
		"negative": {tensor.F32, []int{2, -1}},
		"overflow": {tensor.F32, []int{math.MaxInt / 2, 4}},
		"bytes":    {tensor.F64, []int{math.MaxInt / 4}},
		"dtype":    {tensor.Invalid, []int{1}},
	} {
		if b, err := rt.NewBuffer(c.d, c.shape...); err == nil {
			b.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func views(t *testing.T, rt compute.Runtime) {
	b := MustBuffer(t, rt, []int{2, 3}, []float32{0, 1, 2, 3, 4, 5}...)
	v, err := b.View(2, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := Floats(v); len(got) != 4 || got[0] != 2 || got[3] != 5 {
		t.Errorf("got %v", got)
	}
	w, err := v.View(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	SetFloats(w, []float32{9})
	if got := Floats(b)[3]; got != 9 {
		t.Errorf("a write through a view: got %v, want 9", got)
	}
	end, err := b.View(6, 0)
	if err != nil {
		t.Errorf("empty view at the end: %v", err)
	} else {
		end.Close()
	}
	for _, c := range []struct {
		offset int
		shape  []int
	}{{-1, []int{1}}, {5, []int{2}}, {7, []int{0}}, {0, []int{7}}, {0, []int{-1}}, {1, []int{math.MaxInt, 2}}} {
		if x, err := b.View(c.offset, c.shape...); err == nil {
			x.Close()
			t.Errorf("view %d %v: no error", c.offset, c.shape)
		}
	}
	v.Close()
	w.Close()
	if b.Bytes() == nil {
		t.Error("closing a view closed its buffer")
	}
}

// affine is y = x*w + b over rows of 3.
func affine() *onnx.Model {
	return Model(&onnx.Graph{
		Nodes: []*onnx.Node{
			Node("Mul", []string{"x", "w"}, []string{"m"}),
			Node("Add", []string{"m", "b"}, []string{"y"}),
		},
		Initializers: []*onnx.Tensor{Tensor("w", []int64{3}, []float32{1, 2, 3}...)},
		Inputs:       []onnx.ValueInfo{Value("x", onnx.Float, "rows", 3), Value("b", onnx.Float, 3)},
		Outputs:      []onnx.ValueInfo{Value("y", onnx.Float, "rows", 3), Value("m", onnx.Float, "rows", 3)},
	})
}

func ports(t *testing.T, rt compute.Runtime) {
	p := MustCompile(t, rt, affine(), compute.Options{})
	in, out := p.Inputs(), p.Outputs()
	if len(in) != 2 || in[0].Name != "x" || in[1].Name != "b" || in[0].DType != tensor.F32 ||
		len(in[0].Shape) != 2 || in[0].Shape[0] != -1 || in[0].Shape[1] != 3 {
		t.Errorf("inputs: got %+v", in)
	}
	if len(out) != 2 || out[0].Name != "y" || out[1].Name != "m" {
		t.Errorf("outputs: got %+v", out)
	}
}

func runs(t *testing.T, rt compute.Runtime) {
	p := MustCompile(t, rt, affine(), compute.Options{})
	b := MustBuffer(t, rt, []int{3}, []float32{10, 20, 30}...)
	for rows := 1; rows < 4; rows++ { // the open dimension changes between runs
		x := MustNew(t, rt, tensor.F32, rows, 3)
		y := MustNew(t, rt, tensor.F32, rows, 3)
		m := MustNew(t, rt, tensor.F32, rows, 3)
		for range 2 { // the second run reuses what the first one bound
			SetFloats(x, []float32{1, 1, 1, 2, 2, 2, 3, 3, 3}[:3*rows])
			if err := p.Run(t.Context(), []compute.Buffer{x, b}, []compute.Buffer{y, m}); err != nil {
				t.Fatal(err)
			}
			Close(t, "y", Floats(y), []float32{11, 22, 33, 12, 24, 36, 13, 26, 39}[:3*rows], 0)
			Close(t, "m", Floats(m), []float32{1, 2, 3, 2, 4, 6, 3, 6, 9}[:3*rows], 0)
		}
		clear(y.Bytes())
		if err := p.Run(t.Context(), []compute.Buffer{x, b}, []compute.Buffer{y, nil}); err != nil {
			t.Fatalf("one output not wanted: %v", err)
		}
		Close(t, "y alone", Floats(y), []float32{11, 22, 33, 12, 24, 36, 13, 26, 39}[:3*rows], 0)
	}
}

func refusals(t *testing.T, rt compute.Runtime) {
	p := MustCompile(t, rt, affine(), compute.Options{})
	x, y := MustNew(t, rt, tensor.F32, 1, 3), MustNew(t, rt, tensor.F32, 1, 3)
	b := MustNew(t, rt, tensor.F32, 3)
	shut := MustNew(t, rt, tensor.F32, 3)
	shut.Close()
	for name, c := range map[string]struct{ in, out []compute.Buffer }{
		"missing input":    {[]compute.Buffer{x}, []compute.Buffer{y, nil}},
		"missing output":   {[]compute.Buffer{x, b}, []compute.Buffer{y}},
		"nil input":        {[]compute.Buffer{x, nil}, []compute.Buffer{y, nil}},
		"nothing wanted":   {[]compute.Buffer{x, b}, []compute.Buffer{nil, nil}},
		"input dtype":      {[]compute.Buffer{MustNew(t, rt, tensor.I32, 1, 3), b}, []compute.Buffer{y, nil}},
		"output dtype":     {[]compute.Buffer{x, b}, []compute.Buffer{MustNew(t, rt, tensor.I32, 1, 3), nil}},
		"fixed dimension":  {[]compute.Buffer{MustNew(t, rt, tensor.F32, 1, 4), b}, []compute.Buffer{y, nil}},
		"rank":             {[]compute.Buffer{b, b}, []compute.Buffer{y, nil}},
		"output too small": {[]compute.Buffer{MustNew(t, rt, tensor.F32, 2, 3), b}, []compute.Buffer{y, nil}},
		"output too large": {[]compute.Buffer{x, b}, []compute.Buffer{MustNew(t, rt, tensor.F32, 2, 3), nil}},
	} {
		if err := p.Run(t.Context(), c.in, c.out); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := p.Run(t.Context(), []compute.Buffer{x, shut}, []compute.Buffer{y, nil}); !errors.Is(err, compute.ErrClosed) {
		t.Errorf("closed buffer: got %v, want ErrClosed", err)
	}
	if err := p.Run(t.Context(), []compute.Buffer{x, b}, []compute.Buffer{y, nil}); err != nil {
		t.Errorf("after refusals: %v", err)
	}
	p.Close()
	if err := p.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := p.Run(t.Context(), []compute.Buffer{x, b}, []compute.Buffer{y, nil}); !errors.Is(err, compute.ErrClosed) {
		t.Errorf("closed program: got %v, want ErrClosed", err)
	}
}

func inPlace(t *testing.T, rt compute.Runtime) {
	p := MustCompile(t, rt, Model(&onnx.Graph{
		Nodes:   []*onnx.Node{Node("Add", []string{"x", "d"}, []string{"y"})},
		Inputs:  []onnx.ValueInfo{Value("x", onnx.Float, 2), Value("d", onnx.Float, 2)},
		Outputs: []onnx.ValueInfo{Value("y", onnx.Float, 2)},
	}), compute.Options{})
	x := MustBuffer(t, rt, []int{2}, []float32{1, 2}...)
	d := MustBuffer(t, rt, []int{2}, []float32{10, 20}...)
	for range 3 {
		if err := p.Run(t.Context(), []compute.Buffer{x, d}, []compute.Buffer{x}); err != nil {
			t.Fatal(err)
		}
	}
	Close(t, "x", Floats(x), []float32{31, 62}, 0)
}

func cancelled(t *testing.T, rt compute.Runtime) {
	p := MustCompile(t, rt, affine(), compute.Options{})
	x, y, b := MustNew(t, rt, tensor.F32, 1, 3), MustNew(t, rt, tensor.F32, 1, 3), MustNew(t, rt, tensor.F32, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ctx, []compute.Buffer{x, b}, []compute.Buffer{y, nil}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := p.Run(t.Context(), []compute.Buffer{x, b}, []compute.Buffer{y, nil}); err != nil {
		t.Errorf("after a cancelled run: %v", err)
	}
}

func concurrent(t *testing.T, rt compute.Runtime) {
	var wg sync.WaitGroup
	for g := range 2 {
		p := MustCompile(t, rt, affine(), compute.Options{Threads: 1})
		x := MustBuffer(t, rt, []int{1, 3}, []float32{1, 2, 3}...)
		b := MustBuffer(t, rt, []int{3}, []float32{float32(g), 0, 0}...)
		y := MustNew(t, rt, tensor.F32, 1, 3)
		wg.Go(func() {
			for range 50 {
				if err := p.Run(t.Context(), []compute.Buffer{x, b}, []compute.Buffer{y, nil}); err != nil {
					t.Error(err)
					return
				}
				Close(t, "y", Floats(y), []float32{1 + float32(g), 4, 9}, 0)
			}
		})
	}
	wg.Wait()
}

func compiles(t *testing.T, rt compute.Runtime) {
	unknown := affine()
	unknown.Graph.Nodes[0].OpType = "NoSuchOperator"
	undefined := affine()
	undefined.Graph.Nodes[1].Inputs[1] = "nobody"
	outside := affine()
	outside.Graph.Initializers[0].Raw = nil
	outside.Graph.Initializers[0].External = &onnx.External{Location: "w.bin", Length: 12}
	for name, c := range map[string]struct {
		m   *onnx.Model
		dir string
	}{
		"unknown operator": {unknown, ""},
		"undefined input":  {undefined, ""},
		"no folder":        {outside, ""},
		"no file":          {outside, t.TempDir()},
	} {
		if p, err := rt.Compile(c.m, compute.Options{Dir: c.dir}); err == nil {
			p.Close()
			t.Errorf("%s: no error", name)
		}
	}
}
