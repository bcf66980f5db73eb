package cli

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/app"
	"athanor/server/config"
)

func serveCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.config(cmd)
			if err != nil {
				return err
			}
			a, err := app.Open(cmd.Context(), c, app.Options{Log: newLogger(c, cmd.ErrOrStderr())})
			if err != nil {
				return err
			}
			defer a.Close()
			if key := a.FirstKey(); key != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "This is the admin key of the new appliance. It is shown once:\n%s\n", key)
			}
			return a.Run(cmd.Context())
		},
	}
	d := config.Default()
	p := cmd.Flags()
	p.StringVar(&f.values.Listen, "listen", d.Listen, "address to listen on, host:port")
	p.StringVar(&f.values.TLSCert, "tls-cert", "", "TLS certificate (PEM), read again when it changes")
	p.StringVar(&f.values.TLSKey, "tls-key", "", "TLS key (PEM)")
	p.DurationVar((*time.Duration)(&f.values.KeepAlive), "keep-alive", time.Duration(d.KeepAlive), "how long an idle model stays loaded, 0 = always")
	p.DurationVar((*time.Duration)(&f.values.Drain), "drain", time.Duration(d.Drain), "how long a shutdown may wait for running requests")
	p.Var(&f.values.Memory, "memory", "memory that one worker may use, in bytes or as 8GiB, 0 = no limit")
	p.IntVar(&f.values.TrainingJobs, "training-jobs", d.TrainingJobs, "fine-tuning jobs that train at the same time, on equal shares of the cores")
	p.StringSliceVar(&f.values.AllowEgress, "allow-egress", nil, "hosts that may be connected to: host[:port], *.host or an address; \"+private\" behind a name lets it lead into a private network (default none)")
	p.StringVar(&f.values.Hub, "hub", d.Hub, "base URL of the model hub or of a mirror; list its host in --allow-egress")
	return cmd
}

func workerCommand() *cobra.Command {
	var library string
	cmd := &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.RunWorker(cmd.Context(), library) },
	}
	cmd.Flags().StringVar(&library, "library", "", "the ONNX Runtime library")
	return cmd
}

// newLogger writes text or JSON at the configured level.
func newLogger(c config.Config, w io.Writer) *slog.Logger {
	level, _ := c.Level() // checked by Validate
	opt := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}
