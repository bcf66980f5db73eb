package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"athanor/engine/demo"
	"athanor/engine/train/data"
	"athanor/server/files/dataset"
)

// checkFlags are the flags of athanor files check.
type checkFlags struct {
	purpose    string
	errors     int
	validation string

	model     string
	maxLength int
	show      int
	batch     int
	inputs    bool
}

// modelFlags are those that mean nothing without a model.
var modelFlags = []string{"max-seq-length", "show", "batch-size", "train-on-inputs"}

// checkCommand looks into a file without any server.
func checkCommand() *cobra.Command {
	var o checkFlags
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Check a data file by the rules of its format, without uploading it", Args: cobra.ExactArgs(1),
		Long: "Check a data file by the rules of its format, without uploading it. With a model, the samples are also\n" +
			"rendered and tokenized as its training would: how long they are, what is cut, and which tokens are learnt.\n" +
			"Those are green on a terminal and in ⟦ ⟧ elsewhere.",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.purpose, "purpose", dataset.FineTune, "fine-tune, eval or batch-api")
	f.IntVar(&o.errors, "errors", 20, "how many errors to print")
	f.StringVar(&o.validation, "validation", "", "a validation `file` to check too and to compare with FILE")
	f.StringVar(&o.model, "model", "", "model to tokenize for: its `directory`, or "+demo.Name)
	f.IntVar(&o.maxLength, "max-seq-length", 0, "tokens after which samples are cut (default: the model's context)")
	f.IntVar(&o.show, "show", 2, "how many samples to print")
	f.IntVar(&o.batch, "batch-size", 8, "rows of a batch, to count the steps of an epoch")
	f.BoolVar(&o.inputs, "train-on-inputs", false, "learn prompts too")
	return cmd
}

// validate checks the flags together.
func (o *checkFlags) validate(cmd *cobra.Command) error {
	switch {
	case o.errors < 1:
		return errors.New("errors: must be at least 1")
	case (o.model != "" || o.validation != "") && o.purpose != dataset.FineTune:
		return fmt.Errorf("model and validation are only for the purpose %s", dataset.FineTune)
	case o.show < 0 || o.show > data.MaxPreview:
		return fmt.Errorf("show: must be between 0 and %d", data.MaxPreview)
	case o.batch < 1:
		return errors.New("batch-size: must be at least 1")
	case o.maxLength < 0 || o.maxLength == 1:
		return errors.New("max-seq-length: must be at least 2")
	}
	for _, name := range modelFlags {
		if o.model == "" && cmd.Flags().Changed(name) {
			return fmt.Errorf("%s: needs --model", name)
		}
	}
	return nil
}

// checked is a file with what its check found.
type checked struct {
	name   string
	file   *os.File
	source data.Source
	report *dataset.Report
	hashes *dataset.Hashes
}

func (o *checkFlags) run(cmd *cobra.Command, name string) error {
	if err := o.validate(cmd); err != nil {
		return err
	}
	training, err := o.check(cmd, name)
	if err != nil {
		return err
	}
	defer training.file.Close()
	var validation *checked
	if o.validation != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "\nvalidation: %s\n", o.validation)
		if validation, err = o.check(cmd, o.validation); err != nil {
			return err
		}
		defer validation.file.Close()
		if err := compare(cmd.OutOrStdout(), training, validation); err != nil {
			return err
		}
	}
	if o.model == "" {
		return nil
	}
	return o.lint(cmd, training, validation)
}

// check checks a file by the rules of its format and prints the report. A file that
// breaks them is an error.
func (o *checkFlags) check(cmd *cobra.Command, name string) (c *checked, err error) {
	named, file, size, err := openNamed(name, o.purpose)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.finish()
	c = &checked{name: name, file: file, source: data.Source{Type: named.FileType, Content: file, Size: size}, hashes: &dataset.Hashes{}}
	opt := dataset.Options{Purpose: o.purpose, Type: named.FileType, Problems: o.errors, Hashes: c.hashes, Progress: func(done, _ int64) {
		if bar.terminal {
			bar.show("checking", done, size)
		}
	}}
	if named.FileType == "parquet" {
		c.report, err = dataset.CheckParquet(cmd.Context(), file, size, opt)
	} else {
		c.report, err = dataset.Check(cmd.Context(), file, opt)
	}
	if err != nil {
		return nil, err
	}
	bar.finish()
	printReport(cmd.OutOrStdout(), c.report)
	if !c.report.Valid() {
		return nil, fmt.Errorf("%s is not a valid %s file", name, o.purpose)
	}
	return c, nil
}

// printReport shows what a check found.
func printReport(out io.Writer, r *dataset.Report) {
	for _, p := range r.Problems {
		fmt.Fprintln(out, p)
	}
	if more := r.Errors - int64(len(r.Problems)); more > 0 {
		fmt.Fprintf(out, "... and %d more lines with errors\n", more)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if r.Format != "" {
		fmt.Fprintf(w, "format\t%s\n", r.Format)
	}
	fmt.Fprintf(w, "lines\t%d\n", r.Lines)
	fmt.Fprintf(w, "with errors\t%d\n", r.Errors)
	if r.Uncompared > 0 {
		fmt.Fprintf(w, "exact duplicates\t%d, the last %d lines not compared\n", r.Duplicates, r.Uncompared)
	} else {
		fmt.Fprintf(w, "exact duplicates\t%d\n", r.Duplicates)
	}
	for _, has := range []struct {
		name string
		set  bool
	}{
		{"sample weights", r.HasSampleWeights}, {"message weights", r.HasMessageWeights}, {"tools", r.HasTools},
		{"parallel tool calls", r.HasParallelToolCalls}, {"reasoning", r.HasReasoning},
	} {
		if has.set {
			fmt.Fprintf(w, "%s\tyes\n", has.name)
		}
	}
	_ = w.Flush() // a terminal that went away
}

// compare looks for lines of the validation file that are trained on.
func compare(out io.Writer, training, validation *checked) error {
	if a, b := training.report.Format, validation.report.Format; a != b {
		return fmt.Errorf("%s has the %s format, %s has the %s format", training.name, a, validation.name, b)
	}
	n := training.hashes.Shared(validation.hashes)
	fmt.Fprintf(out, "lines that are in the training file too: %d of %d\n", n, validation.report.Lines)
	if training.report.Uncompared+validation.report.Uncompared > 0 {
		fmt.Fprintf(out, "the last %d and %d lines were not compared\n", training.report.Uncompared, validation.report.Uncompared)
	}
	return nil
}

// modelFiles opens the text files of a model.
func modelFiles(name string) (fs.FS, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return os.DirFS(name), nil
	case name == demo.Name:
		return demo.FS(), nil
	}
	return nil, fmt.Errorf("model: %s is neither a directory nor %s; for a model of the server use: athanor fine-tunes preview", name, demo.Name)
}
