package jinja_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"athanor/engine/prompt/jinja"
)

// TestGolden compares with what Jinja2 rendered; see testdata/golden.py. With
// JINJA_GOLDEN set, that file is used instead.
func TestGolden(t *testing.T) {
	path := os.Getenv("JINJA_GOLDEN")
	if path == "" {
		path = "testdata/golden.json"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars  map[string]json.RawMessage `json:"vars"`
		Now   string                     `json:"now"`
		Cases []struct {
			Template string  `json:"template"`
			Want     *string `json:"want"`
			Error    string  `json:"error"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	vars := map[string]jinja.Value{}
	for name, raw := range file.Vars {
		if vars[name], err = jinja.DecodeJSON(raw); err != nil {
			t.Fatal(err)
		}
	}
	now, err := time.Parse("2006-01-02T15:04:05", file.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		got, err := render(c.Template, vars, now)
		switch {
		case c.Want == nil && err == nil:
			t.Errorf("%s\ngot  %q\nwant %s", c.Template, got, c.Error)
		case c.Want != nil && err != nil:
			t.Errorf("%s\ngot  %v\nwant %q", c.Template, err, *c.Want)
		case c.Want != nil && got != *c.Want:
			t.Errorf("%s\ngot  %q\nwant %q", c.Template, got, *c.Want)
		}
	}
	t.Logf("%d cases", len(file.Cases))
}

func render(source string, vars map[string]jinja.Value, now time.Time) (string, error) {
	tmpl, err := jinja.Parse(source)
	if err != nil {
		return "", err
	}
	out, err := tmpl.Render(vars, jinja.Options{Now: now})
	return out.String(), err
}
