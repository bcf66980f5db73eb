package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/config"
)

// run executes a command line and returns what it prints and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := rootCommand("v9")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestWrongCommands checks that what cannot be done is an error, also below a
// command that only holds others.
func TestWrongCommands(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"foo"}, `"foo"`},
		{[]string{"models", "lst"}, `"lst"`},
		{[]string{"keys", "revoke"}, `"revoke"`},
		{[]string{"serve", "now"}, `"now"`},
		{[]string{"models", "import"}, "1 arg"},
		{[]string{"keys", "create"}, `"name"`},
		{[]string{"serve", "--listn", "x"}, "--listn"},
		{[]string{"serve", "--listen", "127.0.0.1:99999"}, "99999"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			if out, err := run(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v and %q, want an error with %s", err, out, tt.want)
			}
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if out, err := run(t, args...); out != "athanor v9\n" || err != nil {
			t.Errorf("%v: got %q, %v", args, out, err)
		}
	}
	for _, args := range [][]string{{}, {"keys"}, {"models"}} {
		if out, err := run(t, args...); !strings.Contains(out, "Available Commands") || err != nil {
			t.Errorf("%v: got %q, %v", args, out, err)
		}
	}
}

// TestFlagsWin checks that a flag that was given wins over the environment and
// the file, and that one that was not given changes nothing.
func TestFlagsWin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "athanor.toml")
	if err := os.WriteFile(file, []byte("threads = 3\ndrain = \"7s\"\nlog-level = \"warn\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ATHANOR_THREADS", "4")
	var got config.Config
	root, f := &cobra.Command{}, &flags{}
	f.register(root)
	cmd := serveCommand(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		got, err = f.config(cmd)
		return err
	}
	root.AddCommand(cmd)
	root.SetArgs([]string{"serve", "--config", file, "--drain", "9s"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got.Threads != 4 || got.LogLevel != "warn" || got.Drain != config.Duration(9*time.Second) {
		t.Errorf("got threads %d, level %s, drain %s", got.Threads, got.LogLevel, time.Duration(got.Drain))
	}
}

// server answers every chat request with an echo of its last message, in two
// events, or as refuse says.
type server struct {
	asked  [][]chatMessage
	refuse string
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var in struct{ Messages []chatMessage }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	s.asked = append(s.asked, in.Messages)
	last := in.Messages[len(in.Messages)-1].Content
	status, body := 200, `data: {"choices":[{"delta":{"content":"you said "}}]}`+"\n\n"+
		`data: {"choices":[{"delta":{"content":"`+last+`"}}]}`+"\n\ndata: [DONE]\n\n"
	if s.refuse != "" {
		status, body = 400, s.refuse
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func talk(s *server, out io.Writer) *conversation {
	return &conversation{client: &client{http: &http.Client{Transport: s}}, model: "m", out: out}
}

// TestConversation checks what a script sees that pipes questions in: answers
// alone, earlier messages repeated to the model until an empty line.
func TestConversation(t *testing.T) {
	var s server
	var out bytes.Buffer
	if err := talk(&s, &out).loop(t.Context(), strings.NewReader("one\ntwo\n\nthree\n")); err != nil {
		t.Fatal(err)
	}
	if want := "you said one\nyou said two\nyou said three\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	want := [][]chatMessage{
		{{"user", "one"}},
		{{"user", "one"}, {"assistant", "you said one"}, {"user", "two"}},
		{{"user", "three"}},
	}
	if !slices.EqualFunc(s.asked, want, slices.Equal) {
		t.Errorf("asked %v, want %v", s.asked, want)
	}
}

func TestConversationErrors(t *testing.T) {
	s := server{refuse: `{"error":{"message":"no such model","type":"t","param":null,"code":null}}`}
	var out bytes.Buffer
	if err := talk(&s, &out).loop(t.Context(), strings.NewReader("one\n")); err != nil {
		t.Fatal(err)
	}
	if out.String() != "error: no such model\n" {
		t.Errorf("got %q", out.String())
	}
	err := talk(&s, io.Discard).loop(t.Context(), strings.NewReader(strings.Repeat("a", maxLine+1)))
	if err == nil || !strings.Contains(err.Error(), "a line has more than") {
		t.Errorf("a long line: got %v", err)
	}
}

// TestConversationInterrupted checks that Ctrl-C ends a chat that waits for the
// next line.
func TestConversationInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	done := make(chan error)
	go func() { done <- talk(&server{}, io.Discard).loop(ctx, r) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestProgressWithoutTerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	for done := range int64(101) {
		p.show("reading", done, 100)
	}
	p.show("checking", 0, 0)
	p.finish()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 12 || lines[0] != "reading" || lines[10] != "reading: 100%" || lines[11] != "checking" {
		t.Errorf("got %q", lines)
	}
}

func TestServerError(t *testing.T) {
	tests := []struct{ body, want string }{
		{`{"error":{"message":"bad","type":"t","param":"p","code":null}}`, "bad"},
		{`{"id":"x"}`, ""},
		{`not JSON`, ""},
	}
	for _, tt := range tests {
		got := ""
		if err := serverError([]byte(tt.body)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.body, got, tt.want)
		}
	}
}
