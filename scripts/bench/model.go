package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"athanor/engine/enginetest"
)

// makeModel writes the model unless it is there: weights of BF16 noise and a
// tokenizer of as many entries, in which every byte of plain text is one token.
func makeModel(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, "writing random weights")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".writing-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	shape := enginetest.Llama1B()
	if err := enginetest.WriteDecoder(tmp, shape, 1); err != nil {
		return err
	}
	for name, content := range map[string]any{
		"tokenizer.json": tokenizer(shape.Vocabulary),
		"tokenizer_config.json": map[string]any{
			"eos_token":     "<|im_end|>",
			"chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n",
		},
	} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o644); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

// reserved is the first special token of Llama 3's numbering.
const reserved = 128000

// tokenizer is a byte-level BPE without merges: the 256 bytes, and words that
// text never becomes but answers may hold.
func tokenizer(size int) map[string]any {
	vocab := map[string]int{}
	for b := range 256 {
		vocab[string(byteRune(b))] = b
	}
	var added []map[string]any
	for id := 256; id < size; id++ {
		if id < reserved {
			vocab[fmt.Sprintf("Ġword%d", id)] = id
			continue
		}
		content := map[int]string{128000: "<|im_start|>", 128009: "<|im_end|>"}[id]
		if content == "" {
			content = fmt.Sprintf("<|reserved_%d|>", id)
		}
		added = append(added, map[string]any{"id": id, "content": content, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	return map[string]any{
		"version": "1.0", "added_tokens": added, "normalizer": nil, "post_processor": nil,
		"pre_tokenizer": byteLevel(), "decoder": byteLevel(),
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	}
}

func byteLevel() map[string]any {
	return map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
}

// byteRune is the character that stands for a byte in byte-level vocabularies:
// itself where it is visible in Latin-1, the next one above 255 otherwise.
func byteRune(b int) rune {
	visible := func(b int) bool { return b > 32 && b < 127 || b > 160 && b != 173 }
	if visible(b) {
		return rune(b)
	}
	hidden := 0
	for i := range b {
		if !visible(i) {
			hidden++
		}
	}
	return rune(256 + hidden)
}
