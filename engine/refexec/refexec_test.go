package refexec_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

func TestConformance(t *testing.T) { computetest.Conformance(t, refexec.New()) }

func TestUnknownOperatorIsNamed(t *testing.T) {
	m := computetest.Model(&onnx.Graph{Nodes: []*onnx.Node{computetest.Node("com.microsoft::PagedAttention", nil, []string{"y"})}})
	_, err := refexec.New().Compile(m, compute.Options{})
	if !errors.Is(err, refexec.ErrUnknownOperator) || !strings.Contains(err.Error(), "com.microsoft::PagedAttention") {
		t.Errorf("got %v", err)
	}
}

// run computes one node over initializers; its outputs y0, y1, ... are float32
// of the given shapes.
func run(t *testing.T, op string, attrs []onnx.Attribute, in []*onnx.Tensor, shapes ...[]int) ([][]float32, error) {
	t.Helper()
	rt := refexec.New()
	g := &onnx.Graph{}
	n := computetest.Node(op, nil, nil, attrs...)
	for i, x := range in {
		if x == nil {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		x.Name = "x" + string(rune('0'+i))
		n.Inputs = append(n.Inputs, x.Name)
		g.Initializers = append(g.Initializers, x)
	}
	var out []compute.Buffer
	for i, shape := range shapes {
		name := "y" + string(rune('0'+i))
		n.Outputs = append(n.Outputs, name)
		v := onnx.ValueInfo{Name: name, Type: onnx.Float}
		for range shape {
			v.Dims = append(v.Dims, onnx.Dim{Size: -1})
		}
		g.Outputs = append(g.Outputs, v)
		out = append(out, computetest.MustNew(t, rt, tensor.F32, shape...))
	}
	g.Nodes = []*onnx.Node{n}
	p := computetest.MustCompile(t, rt, computetest.Model(g), compute.Options{})
	if err := p.Run(t.Context(), nil, out); err != nil {
		return nil, err
	}
	var got [][]float32
	for _, b := range out {
		got = append(got, computetest.Floats(b))
	}
	return got, nil
}

func f32(shape []int64, v ...float32) *onnx.Tensor { return computetest.Tensor("", shape, v...) }
func i64(v ...int64) *onnx.Tensor                  { return computetest.Tensor("", []int64{int64(len(v))}, v...) }
func i32(v ...int32) *onnx.Tensor                  { return computetest.Tensor("", []int64{int64(len(v))}, v...) }

// TestByHand has results that were worked out on paper.
func TestByHand(t *testing.T) {
	root2 := float32(math.Sqrt2)
	e := float32(math.E)
	for _, c := range []struct {
		name, op string
		attrs    []onnx.Attribute
		in       []*onnx.Tensor
		shape    []int
		want     []float32
	}{
		{"matrix product", "MatMul", nil, []*onnx.Tensor{f32([]int64{2, 2}, 1, 2, 3, 4), f32([]int64{2, 1}, 10, 100)}, []int{2, 1}, []float32{210, 430}},
		{"transposed product", "com.microsoft::FusedMatMul", []onnx.Attribute{computetest.Int("transB", 1)},
			[]*onnx.Tensor{f32([]int64{1, 2}, 1, 2), f32([]int64{2, 2}, 1, 10, 100, 1000)}, []int{1, 2}, []float32{21, 2100}},
		{"softmax", "Softmax", nil, []*onnx.Tensor{f32([]int64{1, 2}, 5, 6)}, []int{1, 2}, []float32{1 / (1 + e), e / (1 + e)}},
		{"softmax of large values", "Softmax", nil, []*onnx.Tensor{f32([]int64{1, 2}, 1e4, 1e4)}, []int{1, 2}, []float32{0.5, 0.5}},
		{"root mean square", "SimplifiedLayerNormalization", []onnx.Attribute{computetest.Float("epsilon", 0)},
			[]*onnx.Tensor{f32([]int64{1, 2}, 1, 0), f32([]int64{2}, 1, 5)}, []int{1, 2}, []float32{root2, 0}},
		// Codes 8+1, 8-1, 8+7, 8-8 at scale 0.5 are 0.5, -0.5, 3.5, -4.
		{"4-bit product", "com.microsoft::MatMulNBits", []onnx.Attribute{computetest.Int("K", 4), computetest.Int("N", 1), computetest.Int("bits", 4), computetest.Int("block_size", 4)},
			[]*onnx.Tensor{f32([]int64{1, 4}, 1, 10, 100, 1000), computetest.Tensor("", []int64{1, 1, 2}, uint8(0x79), 0x0f), f32([]int64{1, 1}, 0.5)}, []int{1, 1}, []float32{0.5 - 5 + 350 - 4000}},
		// The second row's zero point is 3: codes 4, 3 at scale 2 are 2, 0.
		{"4-bit look-up with zero points", "com.microsoft::GatherBlockQuantized", []onnx.Attribute{computetest.Int("bits", 4), computetest.Int("block_size", 16)},
			[]*onnx.Tensor{computetest.Tensor("", []int64{2, 1}, uint8(0), 0x34), i64(1), f32([]int64{2, 1}, 1, 2), computetest.Tensor("", []int64{2, 1}, uint8(0), 3)}, []int{1, 2}, []float32{2, 0}},
		{"blocks of 2", "DequantizeLinear", []onnx.Attribute{computetest.Int("axis", 1), computetest.Int("block_size", 2)},
			[]*onnx.Tensor{computetest.Tensor("", []int64{1, 4}, int8(1), -2, 3, -4), f32([]int64{1, 2}, 10, 0.5)}, []int{1, 4}, []float32{10, -20, 1.5, -2}},
		{"last rows", "GatherND", []onnx.Attribute{computetest.Int("batch_dims", 1)},
			[]*onnx.Tensor{f32([]int64{2, 2, 1}, 1, 2, 3, 4), computetest.Tensor("", []int64{2, 1}, int64(1), 0)}, []int{2, 1}, []float32{2, 3}},
		{"elements", "GatherElements", []onnx.Attribute{computetest.Int("axis", 1)},
			[]*onnx.Tensor{f32([]int64{2, 2}, 1, 2, 3, 4), computetest.Tensor("", []int64{2, 1}, int64(1), 0)}, []int{2, 1}, []float32{2, 3}},
		{"one element twice", "ScatterElements", []onnx.Attribute{computetest.Str("reduction", "add")},
			[]*onnx.Tensor{f32([]int64{3}, 1, 2, 3), i64(2, 2, 0), f32([]int64{3}, 10, 20, 30)}, []int{3}, []float32{31, 2, 33}},
		{"one row twice", "ScatterND", []onnx.Attribute{computetest.Str("reduction", "add")},
			[]*onnx.Tensor{f32([]int64{2, 2}, 1, 2, 3, 4), computetest.Tensor("", []int64{2, 1}, int64(1), 1), f32([]int64{2, 2}, 10, 20, 30, 40)}, []int{2, 2}, []float32{1, 2, 43, 64}},
		{"backward slice", "Slice", nil, []*onnx.Tensor{f32([]int64{4}, 1, 2, 3, 4), i64(-1), i64(-5), i64(0), i64(-2)}, []int{2}, []float32{4, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := run(t, c.op, c.attrs, c.in, c.shape)
			if err != nil {
				t.Fatal(err)
			}
			computetest.Close(t, "y", got[0], c.want, 1e-6)
		})
	}
}

// TestAttentionByHand decodes one position with a quarter turn per position:
// cos = 0, sin = 1 at position 1 turns (a, b) into (-b, a).
func TestAttentionByHand(t *testing.T) {
	attrs := []onnx.Attribute{
		computetest.Int("num_heads", 1), computetest.Int("kv_num_heads", 1), computetest.Int("do_rotary", 1), computetest.Float("scale", 1),
	}
	got, err := run(t, "com.microsoft::GroupQueryAttention", attrs, []*onnx.Tensor{
		f32([]int64{1, 1, 2}, 0, -2),               // the query becomes (2, 0)
		f32([]int64{1, 1, 2}, 0, -1),               // the new key becomes (1, 0)
		f32([]int64{1, 1, 2}, 7, 8),                // its value
		f32([]int64{1, 1, 3, 2}, 1, 0, 9, 9, 0, 0), // one past key, equal to the new one
		f32([]int64{1, 1, 3, 2}, 1, 2, 9, 9, 0, 0), // and its value
		i32(1), i32(2), // two positions in all
		f32([]int64{2, 1}, 1, 0), f32([]int64{2, 1}, 0, 1),
	}, []int{1, 1, 2}, []int{1, 1, 3, 2}, []int{1, 1, 3, 2})
	if err != nil {
		t.Fatal(err)
	}
	computetest.Close(t, "mean of the two values", got[0], []float32{4, 5}, 1e-6)
	computetest.Close(t, "keys", got[1], []float32{1, 0, 1, 0, 0, 0}, 1e-6)
	computetest.Close(t, "values", got[2], []float32{1, 2, 7, 8, 0, 0}, 1e-6)
}

// TestRunRefuses has nodes whose inputs do not fit: an error that names the
// node, never a crash.
func TestRunRefuses(t *testing.T) {
	x := func() *onnx.Tensor { return f32([]int64{2, 3}, 1, 2, 3, 4, 5, 6) }
	for name, c := range map[string]struct {
		op    string
		attrs []onnx.Attribute
		in    []*onnx.Tensor
	}{
		"inner dimensions": {"MatMul", nil, []*onnx.Tensor{x(), x()}},
		"no broadcast":     {"Add", nil, []*onnx.Tensor{x(), f32([]int64{2}, 1, 2)}},
		"missing input":    {"Add", nil, []*onnx.Tensor{x(), nil}},
		"index":            {"Gather", nil, []*onnx.Tensor{x(), i64(2)}},
		"element":          {"GatherElements", nil, []*onnx.Tensor{f32([]int64{2}, 1, 2), i64(0, 2)}},
		"element axis":     {"GatherElements", []onnx.Attribute{computetest.Int("axis", 2)}, []*onnx.Tensor{x(), x()}},
		"update size":      {"ScatterElements", []onnx.Attribute{computetest.Str("reduction", "add")}, []*onnx.Tensor{f32([]int64{2}, 1, 2), i64(0), f32([]int64{2}, 1, 2)}},
		"overwriting":      {"ScatterElements", nil, []*onnx.Tensor{f32([]int64{2}, 1, 2), i64(0), f32([]int64{1}, 1)}},
		"update row":       {"ScatterND", []onnx.Attribute{computetest.Str("reduction", "add")}, []*onnx.Tensor{f32([]int64{2}, 1, 2), i64(-3), f32(nil, 1)}},
		"update depth":     {"ScatterND", []onnx.Attribute{computetest.Str("reduction", "add")}, []*onnx.Tensor{f32([]int64{2}, 1, 2), i64(0, 0), f32(nil, 1)}},
		"axis":             {"Softmax", []onnx.Attribute{computetest.Int("axis", 5)}, []*onnx.Tensor{x()}},
		"permutation":      {"Transpose", []onnx.Attribute{computetest.Ints("perm", 7, 0)}, []*onnx.Tensor{x()}},
		"size":             {"Reshape", nil, []*onnx.Tensor{x(), i64(5)}},
		"huge":             {"Expand", nil, []*onnx.Tensor{x(), i64(1<<40, 1, 1)}},
		"step zero":        {"Slice", nil, []*onnx.Tensor{x(), i64(0), i64(1), i64(0), i64(0)}},
		"division":         {"Div", nil, []*onnx.Tensor{i64(1), i64(0)}},
		"weight size":      {"com.microsoft::MatMulNBits", []onnx.Attribute{computetest.Int("K", 3), computetest.Int("N", 9), computetest.Int("block_size", 16)}, []*onnx.Tensor{x(), computetest.Tensor("", []int64{1}, uint8(1)), f32([]int64{1}, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, c.op, c.attrs, c.in, []int{2, 3}); err == nil || !strings.Contains(err.Error(), "node 0") {
				t.Errorf("got %v, want an error that names the node", err)
			}
		})
	}
}

func TestExternalWeights(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "w.bin"), computetest.Bytes([]float32{0, 1, 2, 3}), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := func(e onnx.External) (compute.Program, error) {
		return refexec.New().Compile(computetest.Model(&onnx.Graph{
			Initializers: []*onnx.Tensor{{Name: "w", Type: onnx.Float, Dims: []int64{2}, External: &e}},
			Outputs:      []onnx.ValueInfo{computetest.Value("w", onnx.Float, 2)},
		}), compute.Options{Dir: dir})
	}
	p, err := compile(onnx.External{Location: "w.bin", Offset: 4, Length: 8})
	if err != nil {
		t.Fatal(err)
	}
	y := computetest.MustNew(t, refexec.New(), tensor.F32, 2)
	if err := p.Run(context.Background(), nil, []compute.Buffer{y}); err != nil {
		t.Fatal(err)
	}
	computetest.Close(t, "w", computetest.Floats(y), []float32{1, 2}, 0)
	for name, e := range map[string]onnx.External{
		"beyond the end": {Location: "w.bin", Offset: 12, Length: 8},
		"length":         {Location: "w.bin", Length: 4},
		"leaves":         {Location: "../w.bin", Length: 8},
		"missing":        {Location: "none", Length: 8},
	} {
		if _, err := compile(e); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
