package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"athanor/engine/train/data"
	"athanor/server/api"
	"athanor/server/files/dataset"
)

// checkFlags are the flags of athanor files check.
type checkFlags struct {
	purpose    string
	errors     int
	validation string

	model                          string
	maxLength, show, epochs, evals int
	rank                           int
	batch, kind                    string
	inputs, packing                bool

	batchRows int // of batch, 0 = as the job chooses
}

// What is trained, in the flag type.
const (
	kindLoRA = "lora"
	kindFull = "full"
)

// batchMax leaves the batch size to the job.
const batchMax = "max"

// modelFlags are those that mean nothing without a model.
var modelFlags = []string{"max-seq-length", "show", "batch-size", "train-on-inputs", "n-epochs", "n-evals", "packing", "type", "lora-r"}

// checkCommand looks into a file. Only the name of a model needs the data directory.
func checkCommand(f *flags) *cobra.Command {
	var o checkFlags
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Check a data file by the rules of its format, without uploading it", Args: cobra.ExactArgs(1),
		Long: "Check a data file by the rules of its format, without uploading it. With a model, the samples are also\n" +
			"rendered and tokenized as its training would: how long they are, what is cut, and which tokens are learnt,\n" +
			"which are green on a terminal and in ⟦ ⟧ elsewhere, and about how long the job takes on this machine. The flags of\n" +
			"the job are those of athanor fine-tunes create.",
		Example: "  athanor files check data.jsonl --validation held-out.jsonl --model my-model --n-epochs 3 --n-evals 5",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(f, cmd, args[0]) },
	}
	o.register(cmd)
	return cmd
}

func (o *checkFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.purpose, "purpose", dataset.FineTune, "fine-tune, eval or batch-api")
	f.IntVar(&o.errors, "errors", 20, "how many errors to print")
	f.StringVar(&o.validation, "validation", "", "a validation `file` to check too and to compare with FILE")
	f.StringVar(&o.model, "model", "", "model to tokenize for: its `name`, or a directory with its files")
	f.IntVar(&o.maxLength, "max-seq-length", 0, "tokens after which samples are cut (default: the model's context)")
	f.IntVar(&o.show, "show", 2, "how many samples to print")
	f.BoolVar(&o.inputs, "train-on-inputs", false, "learn prompts too")
	f.StringVar(&o.batch, "batch-size", batchMax, "samples of one pass, or max")
	f.BoolVar(&o.packing, "packing", true, "several samples in one sequence")
	f.IntVar(&o.epochs, "n-epochs", api.DefaultEpochs, "times that the data is seen")
	f.IntVar(&o.evals, "n-evals", 0, "evaluations on the validation file")
	f.StringVar(&o.kind, "type", kindLoRA, "lora or full")
	f.IntVar(&o.rank, "lora-r", api.DefaultLoRARank, "rank of the adapter")
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
	case o.maxLength < 0 || o.maxLength == 1:
		return errors.New("max-seq-length: must be at least 2")
	}
	for _, name := range modelFlags {
		if o.model == "" && cmd.Flags().Changed(name) {
			return fmt.Errorf("%s: needs --model", name)
		}
	}
	return o.validateJob()
}

// validateJob checks the flags of the job whose time is estimated.
func (o *checkFlags) validateJob() (err error) {
	o.kind = strings.ToLower(o.kind)
	switch {
	case o.epochs < 1 || o.epochs > api.MaxEpochs:
		return fmt.Errorf("n-epochs: must be between 1 and %d", api.MaxEpochs)
	case o.evals < 0 || o.evals > api.MaxEvals:
		return fmt.Errorf("n-evals: must be between 0 and %d", api.MaxEvals)
	case o.evals > 0 && o.validation == "":
		return errors.New("n-evals: needs --validation")
	case o.kind != kindLoRA && o.kind != kindFull:
		return fmt.Errorf("type: must be %s or %s, got %q", kindLoRA, kindFull, o.kind)
	case o.rank < 1 || o.rank > api.MaxLoRARank:
		return fmt.Errorf("lora-r: must be between 1 and %d", api.MaxLoRARank)
	}
	if o.batch == batchMax {
		return nil
	}
	if o.batchRows, err = strconv.Atoi(o.batch); err != nil || o.batchRows < 1 {
		return fmt.Errorf("batch-size: must be a whole number from 1 on or %s, got %q", batchMax, o.batch)
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

func (o *checkFlags) run(f *flags, cmd *cobra.Command, name string) error {
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
	return o.lint(f, cmd, training, validation)
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
