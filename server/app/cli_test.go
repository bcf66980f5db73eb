package app_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"athanor/server/app"
)

// The forms of the command line that scripts depend on, with the real binary.

var keyForm = regexp.MustCompile(`^ath_[0-9A-Za-z]{43}$`)

// must runs the binary and expects it to succeed.
func must(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	out, errs, code := run(t, nil, args...)
	if code != 0 {
		t.Fatalf("athanor %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// mustFail runs the binary and expects exit status 1, nothing on the standard
// output, and a plain message that has all of want.
func mustFail(t *testing.T, args []string, want ...string) {
	t.Helper()
	out, errs, code := run(t, nil, args...)
	if code != 1 || strings.TrimSpace(out) != "" || !strings.Contains("\n"+errs, "\nathanor: ") || strings.Contains(errs, "goroutine") {
		t.Errorf("athanor %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	for _, w := range want {
		if !strings.Contains(errs, w) {
			t.Errorf("athanor %s says %q, want something with %q", strings.Join(args, " "), errs, w)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := must(t, "version"); got != "athanor test\n" {
		t.Errorf("got %q", got)
	}
}

func TestWrongCommands(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	mustFail(t, []string{"brew"}, "brew")
	mustFail(t, []string{"serve", "--data", data, "--listen", "nowhere"}, "listen", "nowhere")
	mustFail(t, []string{"serve", "--data", data, "--tls-cert", "x"}, "tls-key")
	mustFail(t, []string{"keys", "create", "--data", data}, "name")
	mustFail(t, []string{"keys", "create", "--data", data, "--name", "x", "--expires-in", "2h"}, "1h, 1d, 7d and 30d")
	mustFail(t, []string{"models", "import", "--data", data, "--name", "x"}, "arg")
	mustFail(t, []string{"models", "import", filepath.Join(data, "none"), "--data", data, "--name", "x"}, "not a directory")
	mustFail(t, []string{"models", "import", data, "--data", data, "--name", "x", "--quantization", "int3"}, "none, int8 or int4", "int3")
	mustFail(t, []string{"models", "import", data, "--data", data, "--name", "../x"}, "name")
	mustFail(t, []string{"chat", "hello", "--data", data, "--model", "no/such-model"}, "Unable to access model no/such-model")
}

// TestCommandsWithoutAServer checks that the commands open the data directory
// themselves when no server has it.
func TestCommandsWithoutAServer(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	first := lastLine(must(t, "keys", "create", "--data", data, "--name", "one"))
	second := lastLine(must(t, "keys", "create", "--data", data, "--name", "two words", "--expires-in", "1h"))
	if !keyForm.MatchString(first) || !keyForm.MatchString(second) || first == second {
		t.Fatalf("got the keys %q and %q", first, second)
	}
	if list := must(t, "models", "list", "--data", data); !strings.Contains(list, app.DemoModel) || !strings.HasPrefix(list, "NAME") {
		t.Errorf("models list: %s", list)
	}
	p := serve(t, data, nil)
	if lastLine(p.Key) != "" {
		t.Errorf("a directory that is not fresh got another first key: %s", p.Key)
	}
	for _, key := range []string{first, second} {
		if status, body := get(t, p.Base+"/v1/whoami", key); status != http.StatusOK {
			t.Errorf("a key that was made without a server: %d %s", status, body)
		}
	}
}

// TestCommandsBesideAServer runs each command while a server has the directory.
func TestCommandsBesideAServer(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), nil)
	if !keyForm.MatchString(p.Key) {
		t.Fatalf("the first key is %q", p.Key)
	}
	out := must(t, "keys", "create", "--data", p.Data, "--name", "laptop")
	key := lastLine(out)
	if !keyForm.MatchString(key) || strings.Count(out, key) != 1 || !strings.HasSuffix(out, "\n"+key+"\n") {
		t.Fatalf("the key is not alone on the last line: %q", out)
	}
	if status, body := get(t, p.Base+"/v1/whoami", key); status != http.StatusOK || !strings.Contains(body, `"project_slug":"default"`) {
		t.Errorf("the new key: %d %s", status, body)
	}
	if list := must(t, "models", "list", "--data", p.Data); !strings.Contains(list, app.DemoModel) {
		t.Errorf("models list: %s", list)
	}
	info, err := os.Stat(filepath.Join(p.Data, "run", "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the admin socket has mode %o, want 600", info.Mode().Perm())
	}
	mustFail(t, []string{"serve", "--data", p.Data, "--listen", "127.0.0.1:0"}, "another process has", "is a server running?")
	if status, _ := get(t, p.Base+"/v1/whoami", key); status != http.StatusOK {
		t.Errorf("the first server does not answer after the second tried: %d", status)
	}
}

// TestModels imports a real model in every quantization, beside a server and
// without one, and speaks to it.
func TestModels(t *testing.T) {
	t.Parallel()
	source := filepath.Join(root(t), "..", "shared", "models", "stories260K")
	if _, err := os.Stat(source); err != nil {
		t.Skipf("no model to import: %v", err)
	}
	dir, data := library(t), dataDir(t)
	out := must(t, "models", "import", source, "--data", data, "--onnxruntime", dir, "--name", "stories/int8", "--quantization", "int8")
	if !strings.Contains(out, "imported stories/int8") || !strings.Contains(out, "int8") {
		t.Errorf("import without a server: %s", out)
	}
	p := serve(t, data, nil, "--onnxruntime", dir)
	key := lastLine(must(t, "keys", "create", "--data", data, "--name", "x"))
	for _, q := range []string{"none", "int4"} {
		out := must(t, "models", "import", source, "--data", data, "--name", "stories/"+q, "--quantization", q)
		if !strings.Contains(out, "imported stories/"+q) {
			t.Errorf("import beside a server: %s", out)
		}
	}
	mustFail(t, []string{"models", "import", source, "--data", data, "--name", "stories/none"}, "exists already")
	list := must(t, "models", "list", "--data", data)
	for _, q := range []string{"none", "int8", "int4"} {
		if !strings.Contains(list, "stories/"+q) {
			t.Errorf("the list does not have stories/%s:\n%s", q, list)
		}
	}
	var reference struct {
		Cases []struct {
			Prompt     string `json:"prompt"`
			GreedyText string `json:"greedy_text"`
			GreedyIDs  []int  `json:"greedy_ids"`
		} `json:"cases"`
	}
	text, err := os.ReadFile(filepath.Join(source, "reference.json"))
	if err == nil {
		err = json.Unmarshal(text, &reference)
	}
	if err != nil || len(reference.Cases) == 0 {
		t.Fatalf("reference: %v", err)
	}
	want := reference.Cases[0]
	for _, q := range []string{"none", "int8", "int4"} {
		got := complete(t, p.Base, key, "stories/"+q, want.Prompt, len(want.GreedyIDs))
		whole := strings.TrimPrefix(want.GreedyText, " ")
		if q == "none" && want.Prompt+got != whole {
			t.Errorf("got  %q\nwant %q", want.Prompt+got, whole)
		}
		if !strings.HasPrefix(got, ", there was") {
			t.Errorf("stories/%s goes on with %q", q, got)
		}
	}
}

// complete is the greedy continuation of a prompt.
func complete(t *testing.T, base, key, model, prompt string, tokens int) string {
	t.Helper()
	in, err := json.Marshal(map[string]any{"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0})
	if err != nil {
		t.Fatal(err)
	}
	status, body := post(t, base+"/v1/completions", key, string(in))
	var out struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != http.StatusOK || len(out.Choices) != 1 {
		t.Fatalf("complete with %s: %d %s", model, status, body)
	}
	if out.Usage.CompletionTokens != tokens {
		t.Errorf("%s gave %d tokens, want %d", model, out.Usage.CompletionTokens, tokens)
	}
	return out.Choices[0].Text
}

func TestChatCommand(t *testing.T) {
	t.Parallel()
	out := must(t, "chat", "What is Athanor?", "--data", dataDir(t), "--onnxruntime", library(t))
	if len(strings.TrimSpace(out)) < 10 || !strings.HasSuffix(out, "\n") {
		t.Errorf("the answer is %q", out)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	args := []string{"doctor", "--data", dataDir(t), "--listen", "127.0.0.1:0"}
	finding := func(out, check string) (verdict string) {
		m := regexp.MustCompile(`(?m)^(ok|warning|FAILED) +` + check + ` +\S`).FindStringSubmatch(out)
		if m == nil {
			return "missing"
		}
		return m[1]
	}

	out, errs, code := run(t, nil, append(args, "--onnxruntime", t.TempDir())...)
	if code != 1 || !strings.Contains(errs, "some checks failed") || finding(out, "onnxruntime") != "FAILED" || !strings.Contains(out, "scripts/get-onnxruntime") {
		t.Errorf("without a library: exit %d\n%s%s", code, out, errs)
	}

	out, errs, code = run(t, nil, append(args, "--onnxruntime", library(t))...)
	if code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, check := range []string{"processor", "gpus", "data directory", "disk sync", "port", "onnxruntime", "one token", "training"} {
		if v := finding(out, check); v != "ok" && v != "warning" {
			t.Errorf("%s: the verdict is %q in\n%s", check, v, out)
		}
	}
	if !strings.Contains(out, app.DemoModel+" answered") {
		t.Errorf("no token:\n%s", out)
	}
	if !strings.Contains(out, "are right on the processor") || !strings.Contains(out, "jobs at once: 1") {
		t.Errorf("nothing about training:\n%s", out)
	}
}
