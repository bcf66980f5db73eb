package data_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"athanor/engine/demo"
	"athanor/engine/token"
	"athanor/engine/train/data"
)

// byteNames spells the 256 bytes as byte-level vocabularies do.
func byteNames() []string {
	names := make([]string, 256)
	extra := 256
	for b := range names {
		if b >= 0x21 && b <= 0x7e || b >= 0xa1 && b <= 0xac || b >= 0xae {
			names[b] = string(rune(b))
		} else {
			names[b] = string(rune(extra))
			extra++
		}
	}
	return names
}

// byteModel is a model whose tokens are single bytes, and special tokens: masks
// can be read off its text.
func byteModel(tb testing.TB, template, bos, eos string, special ...string) fstest.MapFS {
	tb.Helper()
	vocab := map[string]int{}
	for b, name := range byteNames() {
		vocab[name] = b
	}
	var added []map[string]any
	for i, s := range special {
		added = append(added, map[string]any{"id": 256 + i, "content": s, "special": true})
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	config := map[string]any{"eos_token": eos}
	if bos != "" {
		config["bos_token"] = bos
	}
	if template != "" {
		config["chat_template"] = template
	}
	return fstest.MapFS{
		"tokenizer.json": file(tb, map[string]any{"added_tokens": added, "pre_tokenizer": level, "decoder": level,
			"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}}}),
		"tokenizer_config.json": file(tb, config),
		"config.json":           file(tb, map[string]any{"vocab_size": 256 + len(special), "max_position_embeddings": 4096}),
	}
}

func file(tb testing.TB, v any) *fstest.MapFile {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return &fstest.MapFile{Data: b}
}

// shown is the text of a sample with what carries loss in brackets. A weight other
// than 1 stands behind the closing bracket.
func shown(tb testing.TB, model fs.FS, s data.Sample) string {
	tb.Helper()
	tok, err := token.LoadDir(model)
	if err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for i := 0; i < len(s.Tokens); {
		j := i
		for j < len(s.Tokens) && s.Weights[j] == s.Weights[i] {
			j++
		}
		text := tok.Decode(s.Tokens[i:j], false)
		switch w := s.Weights[i]; w {
		case 0:
			b.WriteString(text)
		case 1:
			b.WriteString("[" + text + "]")
		default:
			j, _ := json.Marshal(w)
			b.WriteString("[" + text + "]" + string(j))
		}
		i = j
	}
	return b.String()
}

// sharedTemplate reads a chat template of ../shared, and skips where it is absent.
func sharedTemplate(tb testing.TB, name string) string {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "shared", "tokenizers", "templates", name+".json"))
	if err != nil {
		tb.Skipf("reference files are not here: %v", err)
	}
	var t struct{ Template string }
	if err := json.Unmarshal(raw, &t); err != nil {
		tb.Fatal(err)
	}
	return t.Template
}

// demoDir writes the text files of the embedded model into a folder.
func demoDir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		b, err := fs.ReadFile(demo.FS(), name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}
