package ort_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"athanor/engine/compute"
	"athanor/engine/compute/computetest"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

// linear is y = x @ w for each w [n, n] in turn, quantised to some bits in the
// form of MatMulNBits, or plain float32 (0 bits), kept in dir/weights.bin.
func linear(t testing.TB, dir string, bits int, sizes ...int) *onnx.Model {
	t.Helper()
	var file []byte
	g := &onnx.Graph{}
	external := func(name string, typ onnx.DataType, raw []byte, dims ...int64) string {
		file = append(file, make([]byte, (4096-len(file)%4096)%4096)...)
		g.Initializers = append(g.Initializers, &onnx.Tensor{Name: name, Type: typ, Dims: dims,
			External: &onnx.External{Location: "weights.bin", Offset: int64(len(file)), Length: int64(len(raw))}})
		file = append(file, raw...)
		return name
	}
	from := "x"
	for i := range len(sizes) - 1 {
		k, n := sizes[i], sizes[i+1]
		id := strconv.Itoa(i)
		in, op, attrs := []string{from}, "MatMul", []onnx.Attribute(nil)
		if bits == 0 {
			in = append(in, external("w"+id, onnx.Float, computetest.Bytes(computetest.Random(1, n*k)), int64(k), int64(n)))
		} else {
			op = "com.microsoft::MatMulNBits"
			q := make([]byte, n*k*bits/8)
			for i := range q {
				q[i] = byte(i*7 + i>>8)
			}
			in = append(in,
				external("q"+id, onnx.Uint8, q, int64(n), int64(k/32), int64(32*bits/8)),
				external("s"+id, onnx.Float, computetest.Bytes(computetest.Random(2, n*k/32)), int64(n), int64(k/32)))
			attrs = []onnx.Attribute{computetest.Int("K", int64(k)), computetest.Int("N", int64(n)), computetest.Int("bits", int64(bits)),
				computetest.Int("block_size", 32), computetest.Int("accuracy_level", 4)}
		}
		from = "y" + id
		g.Nodes = append(g.Nodes, computetest.Node(op, in, []string{from}, attrs...))
	}
	g.Inputs = []onnx.ValueInfo{computetest.Value("x", onnx.Float, "rows", sizes[0])}
	g.Outputs = []onnx.ValueInfo{computetest.Value(from, onnx.Float, "rows", sizes[len(sizes)-1])}
	if err := os.WriteFile(filepath.Join(dir, "weights.bin"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	return computetest.Model(g)
}

// apply runs a model with one input and one output of one row.
func apply(t testing.TB, rt compute.Runtime, p compute.Program, x []float32) []float32 {
	t.Helper()
	in := computetest.MustBuffer(t, rt, []int{1, len(x)}, x...)
	out := computetest.MustNew(t, rt, tensor.F32, 1, p.Outputs()[0].Shape[1])
	if err := p.Run(t.Context(), []compute.Buffer{in}, []compute.Buffer{out}); err != nil {
		t.Fatal(err)
	}
	return computetest.Floats(out)
}

func TestExternalWeights(t *testing.T) {
	rt, dir := orttest.Open(t), t.TempDir()
	const n = 64
	m := linear(t, dir, 0, n, n)
	x, w := computetest.Random(5, n), computetest.Random(1, n*n)
	want := make([]float32, n)
	for i := range n {
		for j := range n {
			want[j] += x[i] * w[i*n+j]
		}
	}
	p := computetest.MustCompile(t, rt, m, compute.Options{Dir: dir})
	computetest.Close(t, "y", apply(t, rt, p, x), want, 1e-5)

	weights := m.Graph.Initializers[0].External
	for name, e := range map[string]onnx.External{
		"beyond the end": {Location: "weights.bin", Offset: weights.Offset + 4, Length: weights.Length},
		"wrong length":   {Location: "weights.bin", Length: 4},
		"leaves":         {Location: "../weights.bin", Length: weights.Length},
		"missing":        {Location: "nothing.bin", Length: weights.Length},
		"huge offset":    {Location: "weights.bin", Offset: math.MaxInt64 - 4, Length: weights.Length},
	} {
		m.Graph.Initializers[0].External = &e
		if p, err := rt.Compile(m, compute.Options{Dir: dir}); err == nil {
			p.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCache(t *testing.T) {
	rt, dir := orttest.Open(t), t.TempDir()
	const n = 1536
	m := linear(t, dir, 4, n, n)
	x := computetest.Random(5, n)
	want := apply(t, rt, computetest.MustCompile(t, rt, m, compute.Options{Dir: dir}), x)
	cache := filepath.Join(t.TempDir(), "deep", "model.onnx")
	opt := compute.Options{Dir: dir, Cache: cache, Key: "k1"}
	if err := os.MkdirAll(filepath.Join(cache+".tmp123", "of a killed writer"), 0o700); err != nil {
		t.Fatal(err)
	}

	// use compiles through the cache and says whether it was written (again).
	use := func(step string) bool {
		t.Helper()
		before, _ := os.Stat(cache + ".stamp")
		p := computetest.MustCompile(t, rt, m, opt)
		computetest.Close(t, step, apply(t, rt, p, x), want, 1e-6)
		after, err := os.Stat(cache + ".stamp")
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		return before == nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime()
	}
	if !use("first") {
		t.Error("first: not written")
	}
	if use("second") {
		t.Error("second: written again")
	}
	if info, err := os.Stat(cache + ".data"); err != nil || info.Size() < n*n/2 {
		t.Errorf("no packed weights beside the cache: %v", err)
	}
	damage := func(path string, change func([]byte) []byte) func() {
		return func() {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"flipped weights", damage(cache+".data", flip)},
		{"truncated weights", damage(cache+".data", cut)},
		{"flipped model", damage(cache, flip)},
		{"truncated stamp", damage(cache+".stamp", cut)},
		{"no stamp", func() { os.Remove(cache + ".stamp") }},
		{"no weights", func() { os.Remove(cache + ".data") }},
		{"other processor", damage(cache+".stamp", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"cpu":"`, `"cpu":"0`, 1))
		})},
		{"other key", func() { opt.Key = "k2" }},
		{"other graph", func() { m.Producer = "someone else" }},
	} {
		c.do()
		if !use(c.name) {
			t.Errorf("%s: the cache was trusted", c.name)
		}
		if use(c.name + ", again") {
			t.Errorf("%s: written twice", c.name)
		}
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(cache), "*.tmp*"))
	if len(left) != 0 {
		t.Errorf("temporary files left: %v", left)
	}
	if _, err := rt.Compile(m, compute.Options{Dir: dir, Cache: cache}); err == nil {
		t.Error("a cache without a key: no error")
	}
}

// Packed weights are found by rounding addresses up, so each must lie in the
// cache as it lay in memory, whatever its neighbours' sizes are.
func TestCacheOfManyWeights(t *testing.T) {
	rt := orttest.Open(t)
	for _, bits := range []int{4, 8} {
		for name, sizes := range map[string][]int{
			"small": {96, 128, 64, 160, 32}, "mixed": {96, 1536, 1568, 64, 1536, 1376, 33},
		} {
			t.Run(fmt.Sprintf("%d bits/%s", bits, name), func(t *testing.T) {
				dir := t.TempDir()
				m := linear(t, dir, bits, sizes...)
				x := computetest.Random(5, sizes[0])
				want := apply(t, rt, computetest.MustCompile(t, rt, m, compute.Options{Dir: dir}), x)
				for _, step := range []string{"written", "read"} {
					p := computetest.MustCompile(t, rt, m, compute.Options{Dir: dir, Cache: filepath.Join(dir, "cache"), Key: "k"})
					computetest.Close(t, step, apply(t, rt, p, x), want, 1e-5)
				}
			})
		}
	}
}

// A cache that was copied is read once to see whether it is the same, and
// trusted from then on.
func TestCacheCopied(t *testing.T) {
	rt, dir := orttest.Open(t), t.TempDir()
	m, cache := linear(t, dir, 4, 1536, 1536), filepath.Join(dir, "cache")
	compile := func() {
		computetest.MustCompile(t, rt, m, compute.Options{Dir: dir, Cache: cache, Key: "k"})
	}
	stat := func(suffix string) os.FileInfo {
		info, err := os.Stat(cache + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	compile()
	if err := os.Chtimes(cache+".data", time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	data, before := stat(".data"), stat(".stamp")
	compile()
	after := stat(".stamp")
	if !os.SameFile(data, stat(".data")) {
		t.Error("the same content was written again")
	}
	if os.SameFile(before, after) {
		t.Error("the check is not remembered")
	}
	compile()
	if !os.SameFile(after, stat(".stamp")) {
		t.Error("the cache was checked twice")
	}
}

// A cache that cannot be written must not keep the model from being served.
func TestCacheUnwritable(t *testing.T) {
	rt, dir := orttest.Open(t), t.TempDir()
	cache := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.MkdirAll(filepath.Join(cache+".data", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := computetest.MustCompile(t, rt, linear(t, dir, 4, 64, 64), compute.Options{Dir: dir, Cache: cache, Key: "k"})
	apply(t, rt, p, computetest.Random(5, 64))
}

// heavy is a chain of large multiplications that takes seconds.
func heavy() *onnx.Model {
	const n, layers = 768, 400
	g := &onnx.Graph{
		Inputs:  []onnx.ValueInfo{computetest.Value("x", onnx.Float, n, n)},
		Outputs: []onnx.ValueInfo{computetest.Value("y", onnx.Float, n, n)},
	}
	from := "x"
	for i := range layers {
		to := "y"
		if i < layers-1 {
			to = "h" + string(rune('A'+i%26)) + string(rune('A'+i/26))
		}
		g.Nodes = append(g.Nodes, computetest.Node("MatMul", []string{from, "x"}, []string{to}))
		from = to
	}
	return computetest.Model(g)
}

func TestCancelRunning(t *testing.T) {
	rt := orttest.Open(t)
	p := computetest.MustCompile(t, rt, heavy(), compute.Options{})
	x := computetest.MustNew(t, rt, tensor.F32, 768, 768)
	y := computetest.MustNew(t, rt, tensor.F32, 768, 768)
	for range 2 { // the program stays usable
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := p.Run(ctx, []compute.Buffer{x}, []compute.Buffer{y})
		deadline, _ := ctx.Deadline()
		late := time.Since(deadline)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want context.DeadlineExceeded", err)
		}
		if late > time.Second { // 10 ms on a machine that does nothing else; the whole run takes seconds
			t.Errorf("returned %v after the deadline", late)
		}
		t.Logf("returned %v after the deadline", late)
	}
}

// TestSentences runs a published sentence encoder against its reference, on
// the library and on the interpreter.
func TestSentences(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "models", "mini-bert-embed")
	raw, err := os.ReadFile(filepath.Join(dir, "reference.json"))
	if err != nil {
		t.Skipf("no shared models: %v", err)
	}
	var ref struct {
		InputIDs   [][]int64   `json:"input_ids"`
		Embeddings [][]float32 `json:"embeddings"`
	}
	if err := json.Unmarshal(raw, &ref); err != nil {
		t.Fatal(err)
	}
	raw, err = os.ReadFile(filepath.Join(dir, "onnx", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(t *testing.T, rt compute.Runtime) {
		p := computetest.MustCompile(t, rt, m, compute.Options{})
		for i, ids := range ref.InputIDs {
			got := embed(t, rt, p, ids, len(ref.Embeddings[i]))
			computetest.Close(t, "embedding", got, ref.Embeddings[i], 1e-4)
		}
	}
	t.Run("library", func(t *testing.T) { encode(t, orttest.Open(t)) })
	t.Run("interpreter", func(t *testing.T) { encode(t, refexec.New()) })
}

// embed is the mean of the last hidden states, scaled to length one.
func embed(t *testing.T, rt compute.Runtime, p compute.Program, ids []int64, size int) []float32 {
	t.Helper()
	n := len(ids)
	ones := make([]int64, n)
	for i := range ones {
		ones[i] = 1
	}
	in := make([]compute.Buffer, len(p.Inputs()))
	for i, port := range p.Inputs() {
		switch port.Name {
		case "input_ids":
			in[i] = computetest.MustBuffer(t, rt, []int{1, n}, ids...)
		case "attention_mask":
			in[i] = computetest.MustBuffer(t, rt, []int{1, n}, ones...)
		default:
			in[i] = computetest.MustNew(t, rt, port.DType, 1, n)
		}
	}
	out := make([]compute.Buffer, len(p.Outputs()))
	out[0] = computetest.MustNew(t, rt, tensor.F32, 1, n, size)
	if err := p.Run(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	mean := make([]float32, size)
	for i, v := range computetest.Floats(out[0]) {
		mean[i%size] += v / float32(n)
	}
	norm := 0.0
	for _, v := range mean {
		norm += float64(v) * float64(v)
	}
	for i := range mean {
		mean[i] /= float32(math.Sqrt(norm))
	}
	return mean
}

// BenchmarkRun is the cost of one Run of a model with 40 ports that does
// next to nothing: what the wall itself costs.
func BenchmarkRun(b *testing.B) {
	rt := orttest.Open(b)
	g := &onnx.Graph{}
	var in, out []compute.Buffer
	for i := range 20 {
		s := string(rune('a' + i))
		g.Nodes = append(g.Nodes, computetest.Node("Identity", []string{"x" + s}, []string{"y" + s}))
		g.Inputs = append(g.Inputs, computetest.Value("x"+s, onnx.Float, "n"))
		g.Outputs = append(g.Outputs, computetest.Value("y"+s, onnx.Float, "n"))
		in = append(in, computetest.MustNew(b, rt, tensor.F32, 4))
		out = append(out, computetest.MustNew(b, rt, tensor.F32, 4))
	}
	p := computetest.MustCompile(b, rt, computetest.Model(g), compute.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Run(ctx, in, out); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkView(b *testing.B) {
	rt := orttest.Open(b)
	x := computetest.MustNew(b, rt, tensor.F32, 1024)
	b.ReportAllocs()
	for b.Loop() {
		v, err := x.View(64, 8, 8)
		if err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}
