package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"athanor/engine/prompt/jinja"
)

// ErrNoTemplate says that a model directory has no chat template.
var ErrNoTemplate = errors.New("the model has no chat template")

// The errors of the template language.
type (
	// SyntaxError is a template that can't be compiled, with line and column.
	SyntaxError = jinja.SyntaxError
	// TemplateError is a template's own refusal of its input: a bad request.
	TemplateError = jinja.TemplateError
	// RuntimeError is an operation of a template that failed on its input.
	RuntimeError = jinja.RuntimeError
	// LimitError is a rendering that used up its budget.
	LimitError = jinja.LimitError
)

// Sizes of the files that Load reads.
const (
	maxConfig   = 64 << 20 // tokenizer_config.json may list every added token
	maxTemplate = 1 << 20
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	plain, tools *jinja.Template // tools is used when tools are given
}

// Load finds and compiles the template of a model directory:
// chat_template.jinja, else "chat_template" of tokenizer_config.json, which is a
// string or a list of {name, template} with the names "default" and "tool_use".
// It returns ErrNoTemplate where there is none.
func Load(fsys fs.FS) (*Template, error) {
	const name, config = "chat_template.jinja", "tokenizer_config.json"
	source, err := readFile(fsys, name, maxTemplate)
	switch {
	case err == nil:
		t, err := Parse(string(source))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return t, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	data, err := readFile(fsys, config, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoTemplate
	}
	if err != nil {
		return nil, err
	}
	t, err := fromConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	return t, nil
}

func fromConfig(data []byte) (*Template, error) {
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	var one string
	switch raw := config.ChatTemplate; {
	case len(raw) == 0 || string(raw) == "null":
		return nil, ErrNoTemplate
	case json.Unmarshal(raw, &one) == nil:
		return Parse(one)
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(config.ChatTemplate, &named); err != nil {
		return nil, fmt.Errorf(`"chat_template" is neither a string nor a list of {name, template}: %w`, err)
	}
	return fromNamed(named)
}

func fromNamed(named []struct {
	Name     string `json:"name"`
	Template string `json:"template"`
}) (*Template, error) {
	t := &Template{}
	for _, n := range named {
		into := map[string]**jinja.Template{"default": &t.plain, "tool_use": &t.tools}[n.Name]
		if into == nil {
			continue // "rag" and the like answer no chat
		}
		parsed, err := jinja.Parse(n.Template)
		if err != nil {
			return nil, fmt.Errorf("chat template %q: %w", n.Name, err)
		}
		*into = parsed
	}
	if t.plain == nil {
		return nil, fmt.Errorf(`%w named "default"`, ErrNoTemplate)
	}
	return t, nil
}

func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return data, nil
}

// Parse compiles one template. Errors are *SyntaxError; tags, filters and tests
// that are not known are refused by name.
func Parse(source string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, err
	}
	return &Template{plain: t}, nil
}
