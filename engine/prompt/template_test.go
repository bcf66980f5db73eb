package prompt_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"athanor/engine/prompt"
)

// sharedTemplates is the folder of real templates beside the repository.
func sharedTemplates(t *testing.T) []string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "..", "shared", "tokenizers", "templates", "*.json"))
	if len(files) == 0 {
		t.Skip("no ../shared/tokenizers/templates beside the repository")
	}
	return files
}

type templateFile struct {
	Template string `json:"template"`
	BOS      string `json:"bos_token"`
	EOS      string `json:"eos_token"`
	Now      string `json:"now"`
	Cases    []struct {
		Name                string                     `json:"name"`
		Messages            []json.RawMessage          `json:"messages"`
		Tools               []json.RawMessage          `json:"tools"`
		AddGenerationPrompt bool                       `json:"add_generation_prompt"`
		Kwargs              map[string]json.RawMessage `json:"kwargs"`
		Expected            *string                    `json:"expected"`
		Error               string                     `json:"error"`
	} `json:"cases"`
}

func mustMessages(t testing.TB, raws ...json.RawMessage) []prompt.Message {
	t.Helper()
	var out []prompt.Message
	for _, raw := range raws {
		m, err := prompt.NewMessage(raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func TestRealTemplates(t *testing.T) {
	for _, path := range sharedTemplates(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var file templateFile
			if err := json.Unmarshal(data, &file); err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse("2006-01-02T15:04:05", file.Now)
			if err != nil {
				t.Fatal(err)
			}
			tmpl, err := prompt.Parse(file.Template)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range file.Cases {
				t.Run(c.Name, func(t *testing.T) {
					got, err := tmpl.Render(prompt.Input{
						Messages: mustMessages(t, c.Messages...), Tools: c.Tools, AddGenerationPrompt: c.AddGenerationPrompt,
						Kwargs: c.Kwargs, BOS: file.BOS, EOS: file.EOS, Now: now,
					})
					switch {
					case c.Expected == nil && err == nil:
						t.Fatalf("rendered %q, want the error %s", got, c.Error)
					case c.Expected != nil && err != nil:
						t.Fatalf("error %v, want %q", err, *c.Expected)
					case c.Expected != nil && got.String() != *c.Expected:
						t.Fatalf("got  %q\nwant %q", got, *c.Expected)
					}
				})
			}
		})
	}
}

func TestLoad(t *testing.T) {
	const bad = "{% frobnicate %}"
	tests := []struct {
		name        string
		files       map[string]string
		plain, tool string // what it renders without and with tools
		wantErr     string
	}{
		{name: "jinja file wins", files: map[string]string{
			"chat_template.jinja": "J", "tokenizer_config.json": `{"chat_template":"C"}`}, plain: "J", tool: "J"},
		{name: "config string", files: map[string]string{"tokenizer_config.json": `{"chat_template":"C"}`}, plain: "C", tool: "C"},
		{name: "config list", files: map[string]string{"tokenizer_config.json": `{"chat_template":[
			{"name":"default","template":"D"},{"name":"rag","template":"{{ nope | nope }}"},{"name":"tool_use","template":"T"}]}`},
			plain: "D", tool: "T"},
		{name: "list without default", files: map[string]string{
			"tokenizer_config.json": `{"chat_template":[{"name":"tool_use","template":"T"}]}`}, wantErr: "default"},
		{name: "no file", wantErr: "no chat template"},
		{name: "null", files: map[string]string{"tokenizer_config.json": `{"chat_template":null}`}, wantErr: "no chat template"},
		{name: "absent", files: map[string]string{"tokenizer_config.json": `{}`}, wantErr: "no chat template"},
		{name: "number", files: map[string]string{"tokenizer_config.json": `{"chat_template":7}`}, wantErr: "neither"},
		{name: "broken json", files: map[string]string{"tokenizer_config.json": `{"chat`}, wantErr: "tokenizer_config.json"},
		{name: "syntax in file", files: map[string]string{"chat_template.jinja": bad}, wantErr: "chat_template.jinja: template line 1, column 4"},
		{name: "too long", files: map[string]string{"chat_template.jinja": strings.Repeat("x", 1<<20+1)}, wantErr: "longer than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, data := range tt.files {
				fsys[name] = &fstest.MapFile{Data: []byte(data)}
			}
			tmpl, err := prompt.Load(fsys)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tt.wantErr)
				}
				if strings.Contains(tt.wantErr, "no chat template") && !errors.Is(err, prompt.ErrNoTemplate) {
					t.Fatalf("error %v is not ErrNoTemplate", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			plain, err1 := tmpl.Render(prompt.Input{})
			tool, err2 := tmpl.Render(prompt.Input{Tools: []json.RawMessage{json.RawMessage(`{}`)}})
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if plain.String() != tt.plain || tool.String() != tt.tool {
				t.Fatalf("got %q and %q, want %q and %q", plain, tool, tt.plain, tt.tool)
			}
		})
	}
}
