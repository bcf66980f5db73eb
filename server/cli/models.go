package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"athanor/server/api"
)

func modelsCommand(f *flags) *cobra.Command {
	return group("models", "Import and list models", importCommand(f), listCommand(f))
}

func importCommand(f *flags) *cobra.Command {
	var name, quantization string
	cmd := &cobra.Command{
		Use: "import PATH", Short: "Import a model directory in Hugging Face layout", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return withClient(f, cmd, func(c *client) error {
				bar := newProgress(cmd.ErrOrStderr())
				defer bar.finish()
				in := api.ImportModelRequest{Path: path, Name: name, Quantization: quantization}
				return c.stream(cmd.Context(), "/admin/models/import", in, func(data []byte) error {
					var ev api.ImportEvent
					if err := json.Unmarshal(data, &ev); err != nil {
						return fmt.Errorf("read progress: %w", err)
					}
					if ev.Model == nil {
						bar.show(ev.Phase, ev.Done, ev.Total)
						return nil
					}
					bar.finish()
					fmt.Fprintf(cmd.OutOrStdout(), "imported %s: %s, %s weights, context of %d tokens\n",
						ev.Model.ID, ev.Model.Type, quantization, ev.Model.ContextLength)
					return nil
				})
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the model in requests")
	cmd.Flags().StringVar(&quantization, "quantization", "none", "none, int8 or int4")
	if err := cmd.MarkFlagRequired("name"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func listCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the models", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(f, cmd, func(c *client) error {
				var models []api.Model
				if err := c.call(cmd.Context(), "GET", "/models", nil, &models); err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "NAME\tTYPE\tCONTEXT\tLICENSE")
				for _, m := range models {
					fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", m.ID, m.Type, m.ContextLength, m.License)
				}
				return w.Flush()
			})
		},
	}
}
