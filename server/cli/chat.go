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

// loop answers each line of in until its end; an empty line starts anew.
func (t *conversation) loop(ctx context.Context, in io.Reader) error {
	fmt.Fprintf(t.out, "Speaking to %s. An empty line starts a new conversation; Ctrl-D ends.\n> ", t.model)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			t.messages = nil
		} else if err := t.say(ctx, text); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			fmt.Fprintln(t.out, "error:", err)
		}
		fmt.Fprint(t.out, "> ")
	}
	fmt.Fprintln(t.out)
	return lines.Err()
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
	fmt.Fprintln(t.out)
	if err == nil {
		t.messages = append(messages, chatMessage{"assistant", answer.String()})
	}
	return err
}
