package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"athanor/server/api"
	"athanor/server/app"
)

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func chatCommand(f *flags) *cobra.Command {
	var model string
	cmd := &cobra.Command{
		Use: "chat [QUESTION]", Short: "Chat with a model; without a question, line by line", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(f, cmd, func(c *client) error {
				talk := &conversation{client: c, model: model, out: cmd.OutOrStdout()}
				if len(args) == 1 {
					return talk.say(cmd.Context(), args[0])
				}
				return talk.loop(cmd.Context(), cmd.InOrStdin())
			})
		},
	}
	cmd.Flags().StringVar(&model, "model", app.DemoModel, "model to speak to")
	return cmd
}

type conversation struct {
	client   *client
	model    string
	out      io.Writer
	messages []chatMessage
}

// loop answers each line of in until its end or the end of ctx; an empty line
// starts anew. On a terminal it asks for each line.
func (t *conversation) loop(ctx context.Context, in io.Reader) error {
	ask := func() {}
	if terminal(in) {
		fmt.Fprintf(t.out, "Speaking to %s. An empty line starts a new conversation; Ctrl-D ends.\n", t.model)
		ask = func() { fmt.Fprint(t.out, "> ") }
		defer fmt.Fprintln(t.out)
	}
	lines := readLines(ctx, in)
	for {
		ask()
		select {
		case <-ctx.Done():
			return nil
		case l, more := <-lines:
			switch text := strings.TrimSpace(l.text); {
			case !more || l.err != nil:
				return l.err
			case text == "":
				t.messages = nil
			default:
				if err := t.say(ctx, text); err != nil && ctx.Err() == nil {
					fmt.Fprintln(t.out, "error:", err)
				}
			}
		}
	}
}

// maxLine bounds one line of a conversation, in bytes.
const maxLine = 1 << 20

type line struct {
	text string
	err  error
}

// readLines hands out the lines of in and closes the channel at its end. It
// stays behind when ctx ends during a read: a terminal's read cannot be
// interrupted, and Ctrl-C must not have to wait for the next line.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	out := make(chan line)
	send := func(l line) bool {
		select {
		case out <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(out)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			if !send(line{text: lines.Text()}) {
				return
			}
		}
		err := lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line has more than %d bytes", maxLine)
		}
		if err != nil {
			send(line{err: fmt.Errorf("read the question: %w", err)})
		}
	}()
	return out
}

// say sends one message and prints the answer as it comes.
func (t *conversation) say(ctx context.Context, text string) error {
	messages := append(t.messages, chatMessage{"user", text})
	in := map[string]any{"model": t.model, "messages": messages, "stream": true}
	var answer strings.Builder
	err := t.client.stream(ctx, "/chat/completions", in, func(data []byte) error {
		var chunk api.ChatChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		for _, c := range chunk.Choices {
			answer.WriteString(c.Delta.Content)
			fmt.Fprint(t.out, c.Delta.Content)
		}
		return nil
	})
	if answer.Len() > 0 || err == nil {
		fmt.Fprintln(t.out)
	}
	if err == nil {
		t.messages = append(messages, chatMessage{"assistant", answer.String()})
	}
	return err
}
