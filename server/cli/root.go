package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"athanor/server/config"
)

// Execute runs the command line and returns the exit code.
func Execute(ctx context.Context, version string, args []string) int {
	root := rootCommand(version)
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "athanor:", err)
		return 1
	}
	return 0
}

func rootCommand(version string) *cobra.Command {
	f := &flags{}
	root := group("athanor", "A complete model platform in one binary",
		serveCommand(f), workerCommand(), keysCommand(f), modelsCommand(f), filesCommand(f), fineTunesCommand(f), lineageCommand(f), chatCommand(f), doctorCommand(f, version), versionCommand(version))
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Version = version
	root.SetVersionTemplate("athanor {{.Version}}\n")
	f.register(root)
	return root
}

// group is a command that only holds others and shows them when it is called
// alone. An unknown one is an error; cobra itself would show the help and
// succeed.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return fmt.Errorf("unknown command %q; %s --help lists the commands", args[0], cmd.CommandPath())
	}}
	cmd.AddCommand(commands...)
	return cmd
}

func versionCommand(version string) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, Run: func(cmd *cobra.Command, _ []string) {
		fmt.Fprintln(cmd.OutOrStdout(), "athanor", version)
	}}
}

// flags are the settings that the command line can override; only those that
// were really given replace what file and environment say.
type flags struct {
	file   string
	values config.Config
}

func (f *flags) register(root *cobra.Command) {
	p, d := root.PersistentFlags(), config.Default()
	p.StringVar(&f.file, "config", "", "configuration file (TOML)")
	p.StringVar(&f.values.Data, "data", d.Data, "data directory")
	p.StringVar(&f.values.ONNXRuntime, "onnxruntime", "", "folder of another ONNX Runtime build")
	p.StringVar(&f.values.LogLevel, "log-level", d.LogLevel, "debug, info, warn or error")
	p.StringVar(&f.values.LogFormat, "log-format", d.LogFormat, "text or json")
	p.IntVar(&f.values.Threads, "threads", 0, "threads of one model, 0 = physical cores")
	p.Var(&f.values.KVMemory, "kv-memory", "key/value cache of one model, in bytes or as 4GiB, 0 = 2GiB")
}

// config merges flags over environment over file over defaults.
func (f *flags) config(cmd *cobra.Command) (config.Config, error) {
	c, err := config.Load(f.file)
	if err != nil {
		return c, err
	}
	given := cmd.Flags().Changed
	override(given, "data", &c.Data, f.values.Data)
	override(given, "onnxruntime", &c.ONNXRuntime, f.values.ONNXRuntime)
	override(given, "log-level", &c.LogLevel, f.values.LogLevel)
	override(given, "log-format", &c.LogFormat, f.values.LogFormat)
	override(given, "threads", &c.Threads, f.values.Threads)
	override(given, "kv-memory", &c.KVMemory, f.values.KVMemory)
	override(given, "allow-egress", &c.AllowEgress, f.values.AllowEgress)
	override(given, "hub", &c.Hub, f.values.Hub)
	override(given, "listen", &c.Listen, f.values.Listen)
	override(given, "tls-cert", &c.TLSCert, f.values.TLSCert)
	override(given, "tls-key", &c.TLSKey, f.values.TLSKey)
	override(given, "keep-alive", &c.KeepAlive, f.values.KeepAlive)
	override(given, "drain", &c.Drain, f.values.Drain)
	override(given, "memory", &c.Memory, f.values.Memory)
	override(given, "training-jobs", &c.TrainingJobs, f.values.TrainingJobs)
	return c, c.Validate()
}

func override[T any](given func(string) bool, name string, dst *T, v T) {
	if given(name) {
		*dst = v
	}
}
