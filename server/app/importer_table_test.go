package app_test

import (
	bin "encoding/binary"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"athanor/engine/demo"
)

// demoFolder is a copy of the embedded model that a test may spoil.
func demoFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.FS()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// write replaces a file of a folder.
func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// editConfig changes members of config.json; nil removes one.
func editConfig(t testing.TB, dir string, changes map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "config.json", string(text))
}

const weightsFile = "model.safetensors"

// tensorEntry is what a safetensors header says about one tensor.
type tensorEntry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// editWeights changes the header, and data in place.
func editWeights(t testing.TB, dir string, edit func(header map[string]*tensorEntry, data []byte)) {
	t.Helper()
	all, err := os.ReadFile(filepath.Join(dir, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	length := bin.LittleEndian.Uint64(all)
	header, data := map[string]*tensorEntry{}, all[8+length:]
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(all[8:8+length], &raw); err != nil {
		t.Fatal(err)
	}
	delete(raw, "__metadata__")
	for name, text := range raw {
		e := &tensorEntry{}
		if err := json.Unmarshal(text, e); err != nil {
			t.Fatal(err)
		}
		header[name] = e
	}
	edit(header, data)
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, weightsFile, string(bin.LittleEndian.AppendUint64(nil, uint64(len(text))))+string(text)+string(data))
}

// fill writes the same 16-bit float everywhere.
func fill(data []byte, half uint16) {
	for i := 0; i+1 < len(data); i += 2 {
		bin.LittleEndian.PutUint16(data[i:], half)
	}
}

// last is the name of the last tensor in the file.
func last(header map[string]*tensorEntry) (name string) {
	for n, e := range header {
		if name == "" || e.Offsets[0] > header[name].Offsets[0] {
			name = n
		}
	}
	return name
}

// sparse makes a file of a size that takes no space, with this beginning.
func sparse(t testing.TB, dir, name, beginning string, size int64) {
	t.Helper()
	write(t, dir, name, beginning)
	if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
		t.Fatal(err)
	}
}

// badModel is a folder that must not become a model. Its answer's status is 200
// when the fault shows only after progress was reported.
type badModel struct {
	name  string
	spoil func(t testing.TB, dir string)
	want  answer
}

// refusedModel is the answer to a folder that cannot be used.
func refusedModel(message string) answer {
	return answer{http.StatusBadRequest, "invalid_request_error", "path", "invalid_model", message}
}

const shardIndex = "model.safetensors.index.json"

// shards replaces the weights by an index with this weight map.
func shards(weightMap string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		remove(t, dir, weightsFile)
		write(t, dir, shardIndex, `{"metadata":{},"weight_map":`+weightMap+`}`)
	}
}

// configured replaces one member of the config.
func configured(name string, value any) func(testing.TB, string) {
	return func(t testing.TB, dir string) { editConfig(t, dir, map[string]any{name: value}) }
}

const query0 = "model.layers.0.self_attn.q_proj.weight"

func badWeights() []badModel {
	return []badModel{
		{"weights cut in half", func(t testing.TB, dir string) {
			if err := os.Truncate(filepath.Join(dir, weightsFile), 2<<20); err != nil {
				t.Fatal(err)
			}
		}, refusedModel("outside of the file")},
		{"weights of 0 bytes", func(t testing.TB, dir string) { write(t, dir, weightsFile, "") }, refusedModel("file ends within the header length")},
		{"offsets outside of the file", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) { h[last(h)].Offsets[1] = 1 << 40 })
		}, refusedModel("outside of the file")},
		{"negative offsets", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) { h[query0].Offsets = []int64{-131072, 0} })
		}, refusedModel("not a whole number from 0 to 2^63-1")},
		{"a header of 2 GB", func(t testing.TB, dir string) {
			sparse(t, dir, weightsFile, string(bin.LittleEndian.AppendUint64(nil, 2<<30)), 3<<30)
		}, refusedModel("header of 2147483648 bytes is over the limit")},
		{"a header of 2^64-1", func(t testing.TB, dir string) { write(t, dir, weightsFile, strings.Repeat("\xff", 64)) }, refusedModel("over the limit")},
		{"overlapping tensors", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) {
				h[query0].Shape[1]++ // reaches into what follows
				h[query0].Offsets[1] += 2 * h[query0].Shape[0]
			})
		}, refusedModel("overlaps tensor \"" + query0)},
		{"a shape that overflows", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) { h[query0].Shape = []int64{1 << 40, 1 << 40} })
		}, refusedModel("overflows")},
		{"a tensor missing", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) { h["other"] = h[query0]; delete(h, query0) })
		}, refusedModel(query0)},
		{"a tensor of another shape", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) { h[query0].Shape = []int64{512, 128} })
		}, refusedModel(query0)},
		{"integers in place of weights", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, _ []byte) { h[query0].DType = "I16" })
		}, refusedModel(query0)},
		{"weights that are not numbers", func(t testing.TB, dir string) {
			editWeights(t, dir, func(_ map[string]*tensorEntry, data []byte) {
				fill(data, 0x7e00)
			})
		}, answer{200, "invalid_request_error", "path", "invalid_model", "the model does not load: convert the model to none: tensor"}},
		{"weights that overflow in use", func(t testing.TB, dir string) {
			editWeights(t, dir, func(h map[string]*tensorEntry, data []byte) {
				for _, e := range h {
					e.DType = "BF16"
				}
				fill(data, 0x7f7f) // the largest bfloat16, but in the embedding 1
				at := h["model.embed_tokens.weight"].Offsets
				fill(data[at[0]:at[1]], 0x3f80)
			})
		}, answer{200, "invalid_request_error", "path", "invalid_model", "the model loads but does not generate"}},
		{"an index that names itself", shards(`{"a":"` + shardIndex + `"}`), refusedModel(shardIndex)},
		{"an index out of the folder", shards(`{"a":"../` + weightsFile + `"}`), refusedModel("../" + weightsFile)},
		{"an index to an absolute path", shards(`{"a":"/etc/passwd"}`), refusedModel("/etc/passwd")},
		{"an index to what is not there", shards(`{"a":"model-00001-of-00002.safetensors"}`), refusedModel("model-00001-of-00002.safetensors")},
		{"a pickle", func(t testing.TB, dir string) {
			remove(t, dir, weightsFile)
			write(t, dir, "pytorch_model.bin", "\x80\x02cos\nsystem\n(S'touch /tmp/owned'\ntR.")
		}, refusedModel("pytorch_model.bin")},
		{"a pipe in place of weights", func(t testing.TB, dir string) {
			remove(t, dir, weightsFile)
			if err := syscall.Mkfifo(filepath.Join(dir, weightsFile), 0o600); err != nil {
				t.Fatal(err)
			}
		}, refusedModel("model.safetensors is not a regular file")},
	}
}

func badFolders() []badModel {
	return []badModel{
		{"an unknown architecture", configured("architectures", []string{"NoSuchForCausalLM"}), refusedModel("NoSuchForCausalLM")},
		{"no tokenizer", func(t testing.TB, dir string) { remove(t, dir, "tokenizer.json") }, refusedModel("tokenizer")},
		{"a broken tokenizer", func(t testing.TB, dir string) { write(t, dir, "tokenizer.json", `{"model":{"type":"BPE"`) }, refusedModel("tokenizer.json")},
		{"a tokenizer of 100 GB", func(t testing.TB, dir string) { sparse(t, dir, "tokenizer.json", "{", 100<<30) }, refusedModel("tokenizer.json")},
		{"an invalid template", func(t testing.TB, dir string) { write(t, dir, "chat_template.jinja", "{% for m in %}") }, refusedModel("chat_template.jinja: template line 1, column ")},
		{"a template of 2 MB", func(t testing.TB, dir string) { write(t, dir, "chat_template.jinja", strings.Repeat("a", 2<<20)) }, refusedModel("chat_template.jinja")},
		{"an adapter", func(t testing.TB, dir string) { write(t, dir, "adapter_config.json", `{}`) }, refusedModel("adapter")},
		{"no config", func(t testing.TB, dir string) { remove(t, dir, "config.json") }, refusedModel("config.json")},
		{"a config that is no JSON", func(t testing.TB, dir string) { write(t, dir, "config.json", `{"a":`) }, refusedModel("config.json")},
		{"a config of depth 10^5", func(t testing.TB, dir string) {
			write(t, dir, "config.json", `{"a":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`)
		}, refusedModel("config.json")},
		{"a config of 10 GB", func(t testing.TB, dir string) { sparse(t, dir, "config.json", "{", 10<<30) }, refusedModel("config.json")},
		{"a pipe in place of the config", func(t testing.TB, dir string) {
			remove(t, dir, "config.json")
			if err := syscall.Mkfifo(filepath.Join(dir, "config.json"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, refusedModel("config.json is not a regular file")},
		{"10^12 hidden", configured("hidden_size", 1_000_000_000_000), refusedModel("hidden_size")},
		{"10^9 layers", configured("num_hidden_layers", 1_000_000_000), refusedModel("num_hidden_layers")},
		{"negative heads", configured("num_attention_heads", -8), refusedModel("num_attention_heads")},
		{"0 heads", configured("num_key_value_heads", 0), refusedModel("num_key_value_heads")},
		{"a context of 10^17", configured("max_position_embeddings", 100_000_000_000_000_000), refusedModel("max_position_embeddings")},
		{"a context of 0", configured("max_position_embeddings", 0), refusedModel("max_position_embeddings")},
		{"a vocabulary of half a token", configured("vocab_size", 0.5), refusedModel("vocab_size")},
		{"text for a number", configured("rms_norm_eps", "small"), refusedModel("rms_norm_eps")},
		{"an end token beyond the vocabulary", configured("eos_token_id", 1<<40), refusedModel("eos_token_id")},
	}
}
