package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/api"
)

func lineageCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "lineage MODEL", Short: "Show what a trained model was made of, and check every link by its hash", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(f, cmd, func(c *client) error {
				var l api.FineTuneLineage
				if err := c.call(cmd.Context(), http.MethodGet, "/fine-tunes/lineage?model="+url.QueryEscape(args[0]), nil, &l); err != nil {
					return err
				}
				return showLineage(cmd.OutOrStdout(), &l)
			})
		},
	}
}

// showComparison prints how two forms of the model differ, if they were compared.
func showComparison(out io.Writer, what string, e *api.LineageExport) {
	if e == nil {
		return
	}
	if e.Positions > 0 {
		fmt.Fprintf(out, "\n%s, on %d prompts: largest difference of a logit %.3g, mean divergence %.3g nats, same first choice %.1f%%\n",
			what, e.Prompts, e.MaxLogit, e.MeanKL, 100*e.TopMatches)
	}
	if e.Warning != "" {
		fmt.Fprintln(out, "warning:", printable(e.Warning))
	}
}

// showLineage prints the chain. It is an error when a link is not what it was.
func showLineage(out io.Writer, l *api.FineTuneLineage) error {
	fmt.Fprintf(out, "%s  %s\nmade by %s at %s with version %s\n\n", l.Model, l.ModelID, l.Job, l.CreatedAt.UTC().Format(time.RFC3339), l.CodeVersion)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "LINK\tNAME\tSHA-256\tSTATE")
	broken := 0
	for _, link := range l.Chain {
		kind := link.Kind
		if link.Role != "" {
			kind += " (" + link.Role + ")"
		}
		if link.Step > 0 {
			kind += fmt.Sprintf(" (step %d)", link.Step)
		}
		state := link.State
		if link.Reason != "" {
			state += ": " + printable(link.Reason)
		}
		if link.State != "verified" {
			broken++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", kind, link.Name, link.Hash, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	showComparison(out, "the merged model against its base with the adapter", l.Export)
	showComparison(out, "as it is served against float32", l.Quantized)
	if config := strings.TrimSpace(string(l.Config)); config != "" && config != "null" {
		fmt.Fprintf(out, "\nconfiguration %s\n", config)
	}
	if l.Verified {
		fmt.Fprintln(out, "\nevery link is verified")
		return nil
	}
	if broken == 0 {
		return errors.New("the chain is not verified")
	}
	return fmt.Errorf("%d of %d links are not verified", broken, len(l.Chain))
}
