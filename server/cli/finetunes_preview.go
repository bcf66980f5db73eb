package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"athanor/server/api"
)

// Marks of tokens that carry loss, on a terminal and elsewhere.
var (
	colours  = [2]string{"\x1b[32m", "\x1b[0m"}
	brackets = [2]string{"⟦", "⟧"}
)

func previewCommand(f *flags) *cobra.Command {
	var model string
	var rows int
	var inputs bool
	cmd := &cobra.Command{
		Use: "preview FILE", Short: "Show the first samples as the training would see them", Args: cobra.ExactArgs(1),
		Long: "Show the first samples as the training would see them. FILE is a path, which is uploaded first, or the id of\n" +
			"an uploaded file. The tokens that are learnt are green on a terminal and in ⟦ ⟧ elsewhere.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(f, cmd, func(c *client) error {
				file, err := c.fileID(cmd, args[0])
				if err != nil {
					return err
				}
				in := api.PreviewFineTuneRequest{Model: model, TrainingFile: file, TrainOnInputs: &inputs, TopK: &rows}
				var out api.FineTunePreview
				if err := c.call(cmd.Context(), http.MethodPost, "/fine-tunes/preview", in, &out); err != nil {
					return err
				}
				marks := brackets
				if terminal(cmd.OutOrStdout()) {
					marks = colours
				}
				return showPreview(cmd.OutOrStdout(), &out, marks)
			})
		},
	}
	cmd.Flags().StringVar(&model, "model", "", "base model")
	cmd.Flags().IntVar(&rows, "rows", 3, "how many samples")
	cmd.Flags().BoolVar(&inputs, "train-on-inputs", false, "learn prompts too")
	if err := cmd.MarkFlagRequired("model"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// showPreview prints the tokens of samples, with marks around those that are learnt.
func showPreview(out io.Writer, p *api.FineTunePreview, marks [2]string) error {
	fmt.Fprintf(out, "%s, %s format, at most %d tokens\n", p.Model, p.DatasetFormat, p.MaxSeqLength)
	for i, row := range p.Rows {
		note := ""
		if row.Truncated {
			note = ", cut"
		}
		fmt.Fprintf(out, "\nsample %d: %d tokens, %d learnt%s\n", i+1, row.NumTokens, row.NumTrainedTokens, note)
		var b strings.Builder
		for n, token := range row.Tokens {
			if slices.ContainsFunc(row.TrainedSpans, func(s [2]int) bool { return s[0] == n }) {
				b.WriteString(marks[0])
			}
			for j, line := range strings.Split(token, "\n") {
				if j > 0 {
					b.WriteByte('\n')
				}
				b.WriteString(printable(line))
			}
			if slices.ContainsFunc(row.TrainedSpans, func(s [2]int) bool { return s[1] == n+1 }) {
				b.WriteString(marks[1])
			}
		}
		fmt.Fprintln(out, b.String())
	}
	return nil
}
