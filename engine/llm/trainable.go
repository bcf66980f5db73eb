package llm

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"athanor/engine/family"
)

// Traits are what the config and the chat template of a model say about training it.
type Traits struct {
	Modules   []string // linear modules, by the last part of their names: q_proj
	Context   int      // positions that the model was made for
	Tools     bool     // the chat template knows tools
	Reasoning bool     // the chat template knows reasoning
}

// maxTemplate bounds the file that holds the chat template.
const maxTemplate = 64 << 20

// Trainable reads the traits from a model folder, of which only the config and the
// files of the chat template are needed. The error says, for the owner of the model,
// why it cannot be trained.
func Trainable(fsys fs.FS) (Traits, error) {
	fam, err := family.Open(fsys)
	if err != nil {
		return Traits{}, err
	}
	d := fam.Decoder()
	t := Traits{Context: d.ContextLength}
	for _, l := range d.Linears() {
		t.Modules = append(t.Modules, strings.TrimPrefix(path.Ext(l.Name), "."))
	}
	for _, name := range []string{"chat_template.jinja", "tokenizer_config.json"} {
		text, err := readTemplate(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Traits{}, err
		}
		t.Tools = t.Tools || strings.Contains(text, "tools")
		for _, word := range []string{"reasoning_content", "enable_thinking", "<think>"} {
			t.Reasoning = t.Reasoning || strings.Contains(text, word)
		}
		break // the first one is the template
	}
	return t, nil
}

func readTemplate(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTemplate))
	return string(data), err
}
