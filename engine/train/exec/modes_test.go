package exec_test

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/engine/ort/orttest"
	"athanor/engine/tensor"
	"athanor/engine/train/data"
	train "athanor/engine/train/exec"
	"athanor/engine/weights"
)

func accumulate(t testing.TB, e *train.Executor, b *data.Batch, weigh func([]float32) []float32) []float32 {
	t.Helper()
	logp, err := e.Accumulate(t.Context(), b, weigh)
	if err != nil {
		t.Fatal(err)
	}
	return logp
}

// lossOf is the sum of the negative log-probabilities of the targets, each times
// its weight, and the sum of the weights.
func lossOf(t testing.TB, e *train.Executor, b *data.Batch) (sum, weight float64) {
	t.Helper()
	logp, err := e.Logprobs(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range b.Weights {
		sum, weight = sum-float64(w)*float64(logp[i]), weight+float64(w)
	}
	return sum, weight
}

// alone is one segment of a row as a batch of its own, with padding behind it.
func alone(b *data.Batch, row, segment, padding int) *data.Batch {
	out := &data.Batch{Rows: 1}
	for i := row * b.Length; i < (row+1)*b.Length; i++ {
		if int(b.Segments[i]) != segment {
			continue
		}
		out.Tokens, out.Targets = append(out.Tokens, b.Tokens[i]), append(out.Targets, b.Targets[i])
		out.Weights, out.Positions = append(out.Weights, b.Weights[i]), append(out.Positions, b.Positions[i])
		out.Segments = append(out.Segments, 0)
	}
	for range padding {
		out.Tokens, out.Targets, out.Weights = append(out.Tokens, 0), append(out.Targets, 0), append(out.Weights, 0)
		out.Positions, out.Segments = append(out.Positions, 0), append(out.Segments, -1)
	}
	out.Length = len(out.Tokens)
	return out
}

// TestPacking compares packed rows with their samples one at a time: losses,
// and gradients, which add up.
func TestPacking(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	for name, shape := range shapes() {
		e := open(t, rt, train.Config{ModelDir: writeModel(t, shape), LoRA: lora(4), Layered: name != "qwen2"})
		fill(e)
		b := packed(shape.Vocabulary)
		loss, weight := lossOf(t, e, b)
		accumulate(t, e, b, nil)
		want := gradients(e)
		e.ZeroGrad()
		sum, weights := 0.0, 0.0
		for row, segments := range []int{2, 3} {
			for segment := range segments {
				one := alone(b, row, segment, segment)
				l, w := lossOf(t, e, one)
				sum, weights = sum+l, weights+w
				accumulate(t, e, one, nil)
			}
		}
		if d := math.Abs(sum-loss) / loss; d > 1e-5 || weights != weight || !(loss > 0) {
			t.Errorf("%s: loss %v packed, %v alone; weights %v and %v", name, loss, sum, weight, weights)
		}
		compareAll(t, name, gradients(e), want, 1e-5)
	}
}

// TestModes compares the whole graph with the layers, for both kinds of
// training and with dropout, and each with itself: the same bytes.
func TestModes(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	dropout := lora(4)
	dropout.Dropout = 0.3
	for name, l := range map[string]*engine.LoRA{"LoRA": lora(4), "dropout": dropout, "full": nil} {
		for family, shape := range shapes() {
			if name == "LoRA" && family != "qwen3" { // with dropout, there is all of it
				continue
			}
			t.Run(name+", "+family, func(t *testing.T) {
				dir := writeModel(t, shape)
				var before map[string][]float64
				for _, cfg := range modes() {
					cfg.ModelDir, cfg.LoRA, cfg.Seed = dir, l, 3
					b := packed(shape.Vocabulary)
					b.Noise = 5
					e := open(t, rt, cfg)
					fill(e)
					if e.Info().Whole == cfg.Layered {
						t.Fatalf("the executor chose whole = %v", e.Info().Whole)
					}
					logp := accumulate(t, e, b, nil)
					first := gradients(e)
					e.ZeroGrad()
					again := accumulate(t, e, b, nil)
					if !slices.Equal(again, logp) || !maps.EqualFunc(gradients(e), first, slices.Equal) {
						t.Error("the same batch gave other bytes")
					}
					accumulate(t, e, b, nil) // adds to what is there
					for n, g := range gradients(e) {
						for i := range g {
							g[i] /= 2
						}
						if d := distance(g, first[n]); d > 1e-6 { // rows of the embedding are added up one by one
							t.Errorf("%s: twice the same batch is not twice the gradient", n)
						}
					}
					switch {
					case before == nil:
						before = first
					case cfg.Layered: // the choice is made anew when a job is taken up
						compareAll(t, "against the layers computed twice", first, before, 0)
					default:
						compareAll(t, "against the layers computed twice", first, before, 1e-5)
					}
				}
			})
		}
	}
}

// TestSameBytes repeats passes that are large enough for both threads, in all
// modes.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := enginetest.DecoderShape{
		Architecture: "LlamaForCausalLM", Vocabulary: 1500, Hidden: 256, Layers: 2, Heads: 8, KVHeads: 2, FFN: 640, Context: 128, DType: tensor.BF16,
	}
	dir := writeModel(t, shape)
	b := &data.Batch{Rows: 2, Length: 96}
	for i := range b.Rows * b.Length {
		b.Tokens = append(b.Tokens, int32(i*i*31%shape.Vocabulary))
		b.Targets = append(b.Targets, int32(i*77%shape.Vocabulary))
		b.Weights, b.Positions = append(b.Weights, 0.01), append(b.Positions, int32(i%b.Length))
		b.Segments = append(b.Segments, 0)
	}
	for _, l := range []*engine.LoRA{lora(8), nil} {
		var first map[string][]float64
		for _, cfg := range modes() {
			cfg.ModelDir, cfg.LoRA, cfg.Threads = dir, l, 2
			e := open(t, rt, cfg)
			fill(e)
			for range 3 {
				e.ZeroGrad()
				accumulate(t, e, b, nil)
				now := gradients(e)
				if first == nil {
					first = now
				}
				if !maps.EqualFunc(now, first, slices.Equal) {
					compareAll(t, "other bytes", now, first, 0)
				}
			}
		}
	}
}

// TestWeigh compares weights that depend on the log-probabilities with the same
// weights in the batch.
func TestWeigh(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := shapes()["llama tied, llama3 rope, bf16"]
	dir := writeModel(t, shape)
	for name, l := range map[string]*engine.LoRA{"LoRA": lora(4), "full": nil} {
		for _, layered := range []bool{true, false} {
			e := open(t, rt, train.Config{ModelDir: dir, LoRA: l, Layered: layered})
			fill(e)
			b := packed(shape.Vocabulary)
			var chosen []float32
			logp := accumulate(t, e, b, func(logp []float32) []float32 {
				chosen = make([]float32, len(logp))
				for i, v := range logp {
					if b.Weights[i] != 0 {
						chosen[i] = -v / 3
					}
				}
				return chosen
			})
			got := gradients(e)
			plain, err := e.Logprobs(t.Context(), b)
			if err != nil || distance(widen(logp), widen(plain)) > 1e-6 {
				t.Errorf("log-probabilities %v and %v: %v", logp, plain, err)
			}
			e.ZeroGrad()
			b.Weights = chosen
			accumulate(t, e, b, nil)
			compareAll(t, name, got, gradients(e), 1e-5)
		}
	}
}

// TestDropout checks the share that is taken away, that evaluation knows none,
// and that masks follow the seed and the batch.
func TestDropout(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := shapes()["llama"]
	dir := writeModel(t, shape)
	l := lora(4)
	l.Dropout = 0.5
	run := func(seed, noise uint64) map[string][]float64 {
		e := open(t, rt, train.Config{ModelDir: dir, LoRA: l, Seed: 1, Layered: true})
		other := open(t, rt, train.Config{ModelDir: dir, LoRA: l, Seed: seed, Layered: true})
		for i, p := range other.Params() { // the same adapter whatever the seed
			copy(p.Value.Bytes(), e.Params()[i].Value.Bytes())
		}
		fill(other)
		b := packed(shape.Vocabulary)
		b.Noise = noise
		accumulate(t, other, b, nil)
		return gradients(other)
	}
	same := func(a, b map[string][]float64) bool { return maps.EqualFunc(a, b, slices.Equal) }
	first := run(1, 9)
	if !same(first, run(1, 9)) {
		t.Error("the same seed and batch gave other masks")
	}
	for what, other := range map[string]map[string][]float64{"seed": run(2, 9), "batch": run(1, 10), "evaluation": run(1, 0)} {
		if same(first, other) {
			t.Errorf("another %s gave the same gradients", what)
		}
	}
}

// TestBaseFormats compares each form of a frozen base with a float32 base of
// the same values.
func TestBaseFormats(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	for _, name := range []string{"qwen2", "qwen3"} { // float16, and float32 with heads of 24
		shape := shapes()[name]
		dir := writeModel(t, shape)
		for format, kind := range map[string]string{"": "", "bf16": "", "int8": "int8", "int4": "int4"} {
			modes := []bool{true}
			if name == "qwen3" && kind != "" {
				modes = append(modes, false)
			}
			for _, layered := range modes {
				e := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(4), BaseFormat: format, Layered: layered})
				if got := e.Info().BaseFormat; kind != "" && got != kind {
					t.Errorf("the base is %s, want %s", got, kind)
				}
				plain := open(t, rt, train.Config{ModelDir: roundModel(t, dir, shape, format), LoRA: lora(4), BaseFormat: "none", Layered: layered})
				if got := plain.Info().BaseFormat; got != "f32" {
					t.Errorf("the plain base is %s", got)
				}
				fill(e)
				fill(plain)
				b := packed(shape.Vocabulary)
				accumulate(t, e, b, nil)
				accumulate(t, plain, b, nil)
				compareAll(t, name+" "+format, gradients(e), gradients(plain), 1e-5)
			}
		}
	}
}

// roundModel writes a copy of a model in float32 whose values are those that a
// format can hold.
func roundModel(t *testing.T, dir string, shape enginetest.DecoderShape, format string) string {
	t.Helper()
	from, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	shape.DType = tensor.F32
	out := writeModel(t, shape)
	to, err := weights.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, "model.safetensors")
	raw := readFile(t, path)
	for _, name := range from.Names() {
		source, _ := from.Tensor(name)
		target, _ := to.Tensor(name)
		values := make([]float32, len(target.Bytes())/4)
		if err := from.Float32(name, values); err != nil {
			t.Fatal(err)
		}
		if len(source.Shape) == 2 {
			round(values, int(source.Shape[1]), format, strings.Contains(name, "layers."), source.DType)
		}
		if err := tensor.PutFloat32s(raw[target.Offset:][:4*len(values)], values, tensor.F32); err != nil {
			t.Fatal(err)
		}
	}
	to.Close()
	writeFile(t, path, raw)
	return out
}

func round(values []float32, cols int, format string, layer bool, stored tensor.DType) {
	bits := map[string]int{"int8": 8, "int4": 4}[format]
	if bits == 0 || !layer {
		if format != "" && stored == tensor.F32 {
			for i, v := range values {
				values[i] = tensor.BF16ToF32(tensor.F32ToBF16(v))
			}
		}
		return
	}
	f := weights.Format{Bits: bits, Block: 32}
	codes, scales := make([]byte, f.RowBytes(cols)), make([]float32, f.Blocks(cols))
	for i := 0; i < len(values); i += cols {
		f.QuantizeRow(values[i:i+cols], codes, scales, nil)
		f.DequantizeRow(values[i:i+cols], codes, scales, nil)
	}
}

// TestAdapter goes on from a trained adapter and checks what a fresh one is.
func TestAdapter(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := shapes()["llama"]
	dir := writeModel(t, shape)
	e := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(3, "v_proj", "up_proj"), Seed: 4})
	a := e.Adapter()
	if got := a.Config.Modules; !slices.Equal(got, []string{"up_proj", "v_proj"}) || len(a.Modules) != 4 {
		t.Fatalf("modules %v, %d of them", got, len(a.Modules))
	}
	m := a.Modules["layers.1.self_attn.v_proj"]
	bound := float32(1 / math.Sqrt(float64(m.In)))
	if slices.Max(m.A) > bound || slices.Max(m.A) < 0.8*bound || slices.Min(m.A) > -0.8*bound || slices.Max(m.B) != 0 {
		t.Errorf("fresh values from %v to %v, want within %v; B up to %v", slices.Min(m.A), slices.Max(m.A), bound, slices.Max(m.B))
	}
	if slices.Equal(m.A, a.Modules["layers.0.self_attn.v_proj"].A) {
		t.Error("two modules start with the same values")
	}
	fill(e)
	b := packed(shape.Vocabulary)
	accumulate(t, e, b, nil)
	next := open(t, rt, train.Config{ModelDir: dir, Adapter: e.Adapter(), Seed: 99})
	accumulate(t, next, b, nil)
	if !maps.EqualFunc(gradients(e), gradients(next), slices.Equal) {
		t.Error("going on from the adapter gives other gradients")
	}
	names := []string{}
	for _, p := range e.Params() {
		names = append(names, p.Name)
		if !p.Decay {
			t.Errorf("%s does not decay", p.Name)
		}
	}
	if names[0] != "layers.0.self_attn.v_proj.lora_A" || names[1] != "layers.0.self_attn.v_proj.lora_B" || len(names) != 8 {
		t.Errorf("parameters %v", names)
	}
}

// TestRefusals checks what New and the passes do not take.
func TestRefusals(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := shapes()["llama"]
	dir := writeModel(t, shape)
	other := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(2)}).Adapter()
	other.Modules["layers.7.mlp.up_proj"] = other.Modules["layers.0.mlp.up_proj"]
	alpha, dropout, all := lora(4), lora(4), open(t, rt, train.Config{ModelDir: dir, LoRA: lora(2)}).Adapter()
	alpha.Alpha, dropout.Dropout, all.Config.Dropout = math.NaN(), -0.1, 1
	for name, c := range map[string]struct {
		cfg         train.Config
		param, text string
	}{
		"module": {train.Config{LoRA: lora(4, "q_proj", "c_attn")}, "training_type.lora_trainable_modules", "c_attn; it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"},
		"rank":   {train.Config{LoRA: lora(129)}, "training_type.lora_r", "rank 129"},
		"alpha":  {train.Config{LoRA: alpha}, "training_type.lora_alpha", "alpha NaN"},
		"drop":   {train.Config{LoRA: dropout}, "training_type.lora_dropout", "dropout -0.1"},
		"given":  {train.Config{Adapter: all}, "training_type.lora_dropout", "dropout 1"},
		"format": {train.Config{LoRA: lora(4), BaseFormat: "fp8"}, "base_format", `"fp8"`},
		"full":   {train.Config{BaseFormat: "int4"}, "base_format", "float32"},
		"layer":  {train.Config{Adapter: other}, "", `"layers.7.mlp.up_proj"`},
	} {
		c.cfg.ModelDir = dir
		e, err := train.New(t.Context(), rt, c.cfg)
		if err == nil {
			e.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		var request *engine.RequestError
		if c.param != "" && (!errors.As(err, &request) || request.Param != c.param) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(4)})
	for name, spoil := range map[string]func(*data.Batch){
		"token":    func(b *data.Batch) { b.Tokens[3] = int32(shape.Vocabulary) },
		"target":   func(b *data.Batch) { b.Targets[3] = -1 },
		"position": func(b *data.Batch) { b.Positions[3] = int32(shape.Context) },
		"size":     func(b *data.Batch) { b.Segments = b.Segments[1:] },
	} {
		b := packed(shape.Vocabulary)
		spoil(b)
		if _, err := e.Accumulate(t.Context(), b, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNothingToLearn gives a batch without loss.
func TestNothingToLearn(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := shapes()["llama"]
	dir := writeModel(t, shape)
	for _, l := range []*engine.LoRA{lora(4), nil} {
		for _, layered := range []bool{true, false} {
			e := open(t, rt, train.Config{ModelDir: dir, LoRA: l, Layered: layered})
			b := packed(shape.Vocabulary)
			clear(b.Weights)
			accumulate(t, e, b, nil)
			for _, p := range e.Params() {
				if !bytes.Equal(p.Grad.Bytes(), make([]byte, len(p.Grad.Bytes()))) {
					t.Errorf("%s has a gradient", p.Name)
				}
			}
		}
	}
}

// The estimates grow with the batch, less for layers than as a whole, and
// decide between them.
func TestEstimate(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	shape := shapes()["llama"]
	shape.Layers = 6
	dir := writeModel(t, shape)
	layered := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(4), Recompute: true})
	kept := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(4), Layered: true})
	whole := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(4)})
	small, large := layered.Estimate(1, 32), layered.Estimate(64, 32)
	if small <= 0 || large <= small || whole.Estimate(64, 32) <= large {
		t.Errorf("layered %d and %d, whole %d", small, large, whole.Estimate(64, 32))
	}
	b := packed(shape.Vocabulary)
	least := layered.Estimate(b.Rows, b.Length)
	middle := (least + kept.Estimate(b.Rows, b.Length)) / 2
	some := open(t, rt, train.Config{ModelDir: dir, LoRA: lora(4), Layered: true})
	some.Choose(b.Rows, b.Length, middle)
	if got := some.Estimate(b.Rows, b.Length); got <= least || got > middle {
		t.Errorf("with room for half of the products: %d, without %d, bound %d", got, least, middle)
	}
	fill(some)
	fill(layered)
	accumulate(t, some, b, nil)
	accumulate(t, layered, b, nil)
	compareAll(t, "some layers computed twice", gradients(some), gradients(layered), 0)
	whole.Choose(64, 32, large)
	if whole.Info().Whole || whole.Estimate(64, 32) > large {
		t.Errorf("with a bound of %d the estimate is %d, whole %v", large, whole.Estimate(64, 32), whole.Info().Whole)
	}
	if whole.Choose(64, 32, 1<<40); !whole.Info().Whole {
		t.Error("layers were chosen where everything fits")
	}
	if got := kept.Least(64, 32); got != large {
		t.Errorf("the least for layers is %d, want %d", got, large)
	}
}
