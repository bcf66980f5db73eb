package family_test

import (
	"maps"
	"strings"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/enginetest"
	"athanor/engine/family"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

var llama3Rope = map[string]any{"rope_theta": 10000, "rope_scaling": map[string]any{
	"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}}

// goldens are tiny models that together use everything the families know.
func goldens() map[string]enginetest.DecoderShape {
	base := enginetest.DecoderShape{
		Architecture: "LlamaForCausalLM", Vocabulary: 97, Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2, FFN: 96, Context: 96, DType: tensor.F32,
	}
	with := func(change func(*enginetest.DecoderShape)) enginetest.DecoderShape {
		s := base
		change(&s)
		return s
	}
	return map[string]enginetest.DecoderShape{
		"llama": base,
		"llama tied, llama3 rope, two shards, bf16": with(func(s *enginetest.DecoderShape) {
			s.Tied, s.Shards, s.DType, s.Config = true, 2, tensor.BF16, llama3Rope
		}),
		"llama with all biases, linear rope": with(func(s *enginetest.DecoderShape) {
			s.AttentionBias, s.MLPBias = true, true
			s.Config = map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "rope_theta": 5000.0, "factor": 4}}
		}),
		"llama with heads of 8": with(func(s *enginetest.DecoderShape) { s.Heads, s.KVHeads = 8, 4 }),
		"llama with odd width":  with(func(s *enginetest.DecoderShape) { s.FFN, s.Hidden, s.HeadDim = 172, 48, 16 }),
		"qwen2": with(func(s *enginetest.DecoderShape) {
			s.Architecture, s.Tied, s.DType = "Qwen2ForCausalLM", true, tensor.F16
			s.Config = map[string]any{"use_sliding_window": false, "sliding_window": 8, "max_window_layers": 1, "rope_theta": 1e6}
		}),
		"qwen3": with(func(s *enginetest.DecoderShape) { s.Architecture, s.HeadDim = "Qwen3ForCausalLM", 32 }),
		"qwen3 with heads of 24": with(func(s *enginetest.DecoderShape) {
			s.Architecture, s.HeadDim, s.AttentionBias = "Qwen3ForCausalLM", 24, true
		}),
	}
}

// text is a fixed sequence of tokens.
func text(n, vocab int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = (i*i*7 + 3*i + 11) % vocab
	}
	return ids
}

// TestGoldens compares each model with the reference: a prompt at once, and
// the same text in pieces of several sizes.
func TestGoldens(t *testing.T) {
	runtimes(t, func(t *testing.T, rt compute.Runtime) {
		for name, shape := range goldens() {
			t.Run(name, func(t *testing.T) {
				dir := writeDecoder(t, shape, 1)
				ids := text(40, shape.Vocabulary)
				want := newReference(t, dir, nil).logits(ids)
				s := newStepper(t, rt, dir, 2, family.GraphOptions{})
				whole := s.feed(0, 0, ids)
				largest, _ := difference(whole, want)
				t.Logf("largest difference of logits, prompt at once: %.2e", largest)
				if largest > 2e-5 {
					t.Errorf("prompt at once: logits differ by %.2e", largest)
				}
				var pieces [][]float64
				for past, sizes := 0, []int{7, 1, 1, 13, 1, 16, 1}; past < len(ids); sizes = sizes[1:] {
					pieces = append(pieces, s.feed(1, past, ids[past:past+sizes[0]])...)
					past += sizes[0]
				}
				if largest, _ := difference(pieces, want); largest > 2e-5 {
					t.Errorf("in pieces: logits differ by %.2e", largest)
				}
			})
		}
	})
}

// TestRagged decodes rows of different lengths in one step, after a padded
// prompt of several rows.
func TestRagged(t *testing.T) {
	runtimes(t, func(t *testing.T, rt compute.Runtime) {
		for _, name := range []string{"llama", "llama with heads of 8", "qwen3"} {
			t.Run(name, func(t *testing.T) {
				shape := goldens()[name]
				dir := writeDecoder(t, shape, 2)
				ref := newReference(t, dir, nil)
				s := newStepper(t, rt, dir, 3, family.GraphOptions{KVCapacity: 64})
				ids := text(60, shape.Vocabulary)
				texts := [][]int{ids[:5], ids[20:32], ids[40:49]}
				padded := make([][]int, 3)
				for i, row := range texts {
					padded[i] = append(append([]int{}, row...), make([]int, 12-len(row))...)
				}
				all := make([]int, 12)
				for i := range all {
					all[i] = i
				}
				first := s.step(0, padded, []int{0, 0, 0}, all, []int{5, 12, 9})
				next := s.step(0, [][]int{{1}, {2}, {3}}, []int{5, 12, 9}, []int{0}, nil)
				for i, row := range texts {
					want := ref.logits(append(append([]int{}, row...), i+1))
					if largest, _ := difference(first[i][:len(row)], want[:len(row)]); largest > 2e-5 {
						t.Errorf("row %d: prompt differs by %.2e", i, largest)
					}
					if largest, _ := difference(next[i], want[len(row):]); largest > 2e-5 {
						t.Errorf("row %d: next token differs by %.2e", i, largest)
					}
				}
			})
		}
	})
}

// TestQuantized compares quantised graphs with the reference over the same
// rounded weights: what is left is the rounding of activations in the kernels.
func TestQuantized(t *testing.T) {
	runtimes(t, func(t *testing.T, rt compute.Runtime) {
		for _, name := range []string{"llama with odd width", "qwen2", "qwen3"} {
			for _, c := range []struct {
				opt   family.GraphOptions
				bits  int
				bound float64 // relative: the kernels round activations to int8, by blocks of the same size
			}{
				{family.GraphOptions{Quantization: family.Int8}, 8, 0.023},
				{family.GraphOptions{Quantization: family.Int8, BlockSize: 128}, 8, 0.03},
				{family.GraphOptions{Quantization: family.Int4}, 4, 0.023},
				{family.GraphOptions{Quantization: family.Int4, BlockSize: 64}, 4, 0.026},
				{family.GraphOptions{Quantization: family.Int4, BlockSize: 128}, 4, 0.03},
			} {
				t.Run(name+"/"+string(c.opt.Quantization), func(t *testing.T) {
					shape := goldens()[name]
					dir := writeDecoder(t, shape, 3)
					if block := max(c.opt.BlockSize, 32); shape.Tied && shape.Hidden%block != 0 {
						t.Skipf("rows of %d are no whole blocks of %d: the embedding stays as it is, the reference has only one matrix", shape.Hidden, block)
					}
					ids := text(24, shape.Vocabulary)
					exact := newReference(t, dir, nil).logits(ids)
					want := newReference(t, dir, rounded(c.bits, c.opt.BlockSize)).logits(ids)
					got := newStepper(t, rt, dir, 1, c.opt).feed(0, 0, ids)
					_, kernel := difference(got, want)
					_, whole := difference(got, exact)
					bound := c.bound
					if rt.Name() == "refexec" {
						bound = 5e-6 // it does not round activations
					}
					t.Logf("block %d: relative error %.2e against rounded weights, %.4f against the original", c.opt.BlockSize, kernel, whole)
					if kernel > bound {
						t.Errorf("block %d: relative error %.2e against rounded weights", c.opt.BlockSize, kernel)
					}
				})
			}
		}
	})
}

// rounded quantises matrices as the converter does. An embedding whose rows
// are no whole blocks stays as it is.
func rounded(bits, block int) func(string, []int64, []float32) {
	if block == 0 {
		block = 32
	}
	f := weights.Format{Bits: bits, Block: block}
	return func(name string, shape []int64, v []float32) {
		cols := int(shape[1])
		if strings.HasSuffix(name, "embed_tokens.weight") && cols%block != 0 {
			return
		}
		codes, scales := make([]byte, f.RowBytes(cols)), make([]float32, f.Blocks(cols))
		for i := 0; i < len(v); i += cols {
			f.QuantizeRow(v[i:i+cols], codes, scales, nil)
			f.DequantizeRow(v[i:i+cols], codes, scales, nil)
		}
	}
}

// TestGraphIsDeterministic builds twice and compares.
func TestGraphIsDeterministic(t *testing.T) {
	shape := goldens()["qwen3"]
	dir := writeDecoder(t, shape, 4)
	var calls, last int64
	opt := family.GraphOptions{Quantization: family.Int4, Progress: func(done, total int64) {
		calls++
		if done < last || done > total {
			t.Errorf("progress from %d to %d of %d", last, done, total)
		}
		last = done
	}}
	one, f := convert(t, dir, t.TempDir(), opt)
	if calls == 0 || last != f.Parameters() {
		t.Errorf("progress ended at %d of %d parameters", last, f.Parameters())
	}
	last = 0
	two, _ := convert(t, dir, t.TempDir(), opt)
	names := map[string]bool{}
	for i, n := range one.Graph.Nodes {
		if other := two.Graph.Nodes[i]; n.Name != other.Name || n.OpType != other.OpType {
			t.Fatalf("node %d is %s and %s", i, n.Name, other.Name)
		}
		if names[n.Name] {
			t.Fatalf("two nodes are called %s", n.Name)
		}
		names[n.Name] = true
	}
	ports := map[string]bool{}
	for _, v := range one.Graph.Inputs {
		ports[v.Name] = true
	}
	if want := map[string]bool{"input_ids": true, "rows": true, "seqlens_k": true, "total": true,
		"past.0.key": true, "past.0.value": true, "past.1.key": true, "past.1.value": true}; !maps.Equal(ports, want) {
		t.Errorf("inputs %v", ports)
	}
}
