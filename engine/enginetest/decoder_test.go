package enginetest_test

import (
	"math"
	"os"
	"testing"

	"athanor/engine/enginetest"
	"athanor/engine/family"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// TestWriteDecoder writes folders that their families accept, the same twice.
func TestWriteDecoder(t *testing.T) {
	for _, s := range []enginetest.DecoderShape{
		{Architecture: "LlamaForCausalLM", Tied: true, DType: tensor.BF16, Shards: 3, AttentionBias: true, MLPBias: true},
		{Architecture: "Qwen2ForCausalLM", DType: tensor.F16},
		{Architecture: "Qwen3ForCausalLM", HeadDim: 24, DType: tensor.F32, Shards: 2},
	} {
		t.Run(s.Architecture, func(t *testing.T) {
			s.Vocabulary, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.FFN, s.Context = 300, 64, 2, 4, 2, 96, 32
			dir := t.TempDir()
			if err := enginetest.WriteDecoder(dir, s, 1); err != nil {
				t.Fatal(err)
			}
			f, err := family.Open(os.DirFS(dir))
			if err != nil {
				t.Fatal(err)
			}
			a, err := weights.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if err := f.Check(a); err != nil {
				t.Error(err)
			}
			var n int64
			for _, name := range a.Names() {
				e, _ := a.Tensor(name)
				n += int64(len(e.Bytes()) / e.DType.Size())
			}
			if n != f.Parameters() {
				t.Errorf("%d values in the files, the family counts %d", n, f.Parameters())
			}
			checkSpread(t, a, "model.layers.1.mlp.down_proj.weight", 1/math.Sqrt(96))
		})
	}
}

// checkSpread compares the deviation of a tensor's values with what it should be.
func checkSpread(t *testing.T, a *weights.Archive, name string, want float64) {
	t.Helper()
	e, _ := a.Tensor(name)
	values := make([]float32, e.Shape[0]*e.Shape[1])
	if err := a.Float32(name, values); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, v := range values {
		sum += float64(v) * float64(v)
	}
	if got := math.Sqrt(sum / float64(len(values))); math.Abs(got/want-1) > 0.05 {
		t.Errorf("%s has a deviation of %.4f, want %.4f", name, got, want)
	}
}
