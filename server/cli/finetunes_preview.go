package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"athanor/server/api"
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
				showPreview(cmd.OutOrStdout(), &out, marksFor(cmd.OutOrStdout()))
				return nil
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
func showPreview(out io.Writer, p *api.FineTunePreview, marks lossMarks) {
	fmt.Fprintf(out, "%s, %s format, at most %d tokens\n", p.Model, p.DatasetFormat, p.MaxSeqLength)
	var rows []sampleRow
	for _, r := range p.Rows {
		rows = append(rows, sampleRow{name: "sample", tokens: r.Tokens, spans: r.TrainedSpans, learnt: r.NumTrainedTokens, truncated: r.Truncated})
	}
	printRows(out, rows, marks)
}
