package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func keysCommand(f *flags) *cobra.Command {
	var name, expires string
	create := &cobra.Command{
		Use: "create", Short: "Create an API key; it is printed alone on the last line", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(f, cmd, func(c *client) error {
				in := map[string]string{"name": name}
				if expires != "" {
					in["expires_in"] = expires
				}
				var out struct{ ID, Name, Key string }
				if err := c.call(cmd.Context(), "POST", "/api-keys", in, &out); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "created key %q (%s); it is shown once:\n%s\n", out.Name, out.ID, out.Key)
				return nil
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "what the key is for")
	create.Flags().StringVar(&expires, "expires-in", "", "1h, 1d, 7d or 30d; never when absent")
	if err := create.MarkFlagRequired("name"); err != nil {
		panic(err) // the flag is defined two lines above
	}
	return group("keys", "Manage API keys", create)
}
