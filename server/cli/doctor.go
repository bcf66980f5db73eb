package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"athanor/server/app"
)

func doctorCommand(f *flags, version string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this machine and explain what is missing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config(cmd)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "athanor %s\n", version)
			failed := false
			app.Diagnose(cmd.Context(), c, func(r app.Finding) {
				fmt.Fprintf(out, "%-7s %-14s %s\n", r.Verdict, r.Check, r.Text)
				failed = failed || r.Verdict == app.Failed
			})
			if failed {
				return errors.New("some checks failed")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&f.values.Listen, "listen", "127.0.0.1:8080", "address whose port is checked")
	return cmd
}
