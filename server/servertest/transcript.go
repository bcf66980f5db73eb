package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the responses of transcripts instead of comparing them")

// World is what a transcript talks to.
type World struct {
	Do    func(*http.Request) (*http.Response, error)
	Clock *Clock
	Vars  map[string]string // names in capitals -> values, each longer than a few letters
}

// shownHeaders are the headers that the API promises, in the order shown.
var shownHeaders = []string{"content-type", "allow", "location", "x-together-file-id", "etag", "accept-ranges", "content-range", "retry-after", "x-ratelimit-reset", "x-should-retry"}

// Transcripts runs every .txt below dir, each in a world of its own.
func Transcripts(t *testing.T, dir string, start func(*testing.T) World) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s: %v", dir, err)
	}
	for _, file := range files {
		name, _ := filepath.Rel(dir, file)
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			t.Parallel()
			Transcript(t, file, start(t))
		})
	}
}

// Transcript runs one file in w, or with -update rewrites it.
func Transcript(t *testing.T, file string, w World) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, differences, err := play(t.Context(), string(data), w)
	if err != nil {
		t.Fatalf("%s, %v", file, err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, d := range differences {
		t.Errorf("%s, %s", file, d)
	}
}

// play runs a transcript and returns it with the responses that came, and how
// they differ from those that were written.
func play(ctx context.Context, text string, w World) (out string, differences []string, _ error) {
	vars := maps.Clone(w.Vars)
	if vars == nil {
		vars = map[string]string{}
	}
	var played []string
	last := "" // body of the response before
	for i, part := range strings.Split(text, "\n===\n") {
		ex, err := parse(part)
		if err != nil {
			return "", nil, fmt.Errorf("exchange %d: %w", i+1, err)
		}
		for _, d := range ex.directives {
			if err := d.apply(w, vars, last); err != nil {
				return "", nil, fmt.Errorf("exchange %d: %s: %w", i+1, d.line, err)
			}
		}
		var got string
		if got, last, err = ex.run(ctx, w, vars); err != nil {
			return "", nil, fmt.Errorf("exchange %d: %w", i+1, err)
		}
		if got != ex.want {
			differences = append(differences, fmt.Sprintf("exchange %d: %s\ngot:\n%s\nwant:\n%s", i+1, ex.request[0], got, ex.want))
		}
		played = append(played, ex.head+"---\n"+got)
	}
	return strings.Join(played, "\n\n===\n") + "\n", differences, nil
}

// exchange is one request of a transcript with the response that it should get.
type exchange struct {
	directives []directive
	request    []string // first line and headers
	body       string
	head       string // everything before the response, as written
	want       string
}

func parse(text string) (*exchange, error) {
	head, want, found := strings.Cut(strings.Trim(text, "\n")+"\n", "\n---\n")
	if !found && !*update {
		return nil, fmt.Errorf("no line --- after the request")
	}
	ex := &exchange{head: strings.TrimRight(head, "\n") + "\n", want: strings.TrimRight(want, "\n")}
	lines := strings.Split(strings.TrimRight(head, "\n"), "\n")
	for len(lines) > 0 && (lines[0] == "" || strings.ContainsAny(lines[0][:1], "#+$")) {
		if lines[0] != "" && lines[0][0] != '#' {
			ex.directives = append(ex.directives, directive{lines[0]})
		}
		lines = lines[1:]
	}
	blank := slices.Index(lines, "")
	if blank < 0 {
		blank = len(lines)
	} else {
		ex.body = strings.Join(lines[blank+1:], "\n")
	}
	ex.request = lines[:blank]
	if len(ex.request) == 0 {
		return nil, fmt.Errorf("no request")
	}
	return ex, nil
}

// directive is a line "+ duration" or "$NAME = path" before a request.
type directive struct{ line string }

func (d directive) apply(w World, vars map[string]string, last string) error {
	if by, ok := strings.CutPrefix(d.line, "+ "); ok {
		step, err := time.ParseDuration(by)
		if err == nil {
			w.Clock.Advance(step)
		}
		return err
	}
	name, path, ok := strings.Cut(strings.TrimPrefix(d.line, "$"), " = ")
	if !ok {
		return fmt.Errorf("neither a step of the clock nor a variable")
	}
	var v any
	if err := json.Unmarshal([]byte(last), &v); err != nil {
		return fmt.Errorf("the response before is not JSON: %w", err)
	}
	for key := range strings.SplitSeq(path, ".") {
		object, _ := v.(map[string]any)
		v = object[key]
	}
	s, ok := v.(string)
	if !ok || s == "" {
		return fmt.Errorf("the response before has no string there")
	}
	vars[name] = s
	return nil
}

// run sends the request and shows the response; body is the response's own.
func (ex *exchange) run(ctx context.Context, w World, vars map[string]string) (shown, body string, err error) {
	method, target, _ := strings.Cut(replace(ex.request[0], vars, false), " ")
	req, err := http.NewRequestWithContext(ctx, method, "http://athanor"+target, strings.NewReader(replace(ex.body, vars, false)))
	if err != nil {
		return "", "", err
	}
	for _, h := range ex.request[1:] {
		name, value, ok := strings.Cut(h, ": ")
		if !ok {
			return "", "", fmt.Errorf("%q is no header", h)
		}
		req.Header.Set(name, replace(value, vars, false))
	}
	resp, err := w.Do(req)
	if err != nil {
		return "", "", err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", "", fmt.Errorf("read the response: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return "", "", fmt.Errorf("close the response: %w", err)
	}
	return replace(show(resp, b), vars, true), string(b), nil
}

func show(resp *http.Response, body []byte) string {
	var out bytes.Buffer
	fmt.Fprintln(&out, resp.StatusCode)
	for _, name := range shownHeaders {
		if v := resp.Header.Values(name); len(v) > 0 {
			fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(v, ", "))
		}
	}
	if len(body) > 0 {
		out.WriteByte('\n')
		if json.Indent(&out, body, "", "  ") != nil {
			out.Write(body)
		}
	}
	return strings.TrimRight(out.String(), "\n")
}

// replace puts values for names, or back names for values, longest first.
func replace(s string, vars map[string]string, back bool) string {
	names := slices.SortedFunc(maps.Keys(vars), func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		if back {
			s = strings.ReplaceAll(s, vars[name], "$"+name)
		} else {
			s = strings.ReplaceAll(s, "$"+name, vars[name])
		}
	}
	return s
}
