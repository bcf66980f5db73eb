package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"athanor/engine/train/data"
	"athanor/server/app"
	"athanor/server/config"
)

// printJob prints what a job with this data will do, how long that takes on this
// machine and what it costs.
func (o *checkFlags) printJob(cmd *cobra.Command, c config.Config, m *baseModel, length int, training, validation *data.Counts) error {
	job := app.TrainingJob{
		Model: m.files, Train: training, Validation: validation, Packing: o.packing, RowLength: length, BatchSize: o.batchRows,
		Epochs: o.epochs, Evals: o.evals, Rank: o.rank,
	}
	kind := fmt.Sprintf("LoRA of rank %d", o.rank)
	if o.kind == kindFull {
		job.Rank, kind = 0, "all weights"
	}
	work, err := job.Work()
	if err != nil {
		return fmt.Errorf("model %s: %w", o.model, err)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	defer func() { _ = w.Flush() }() // a terminal that went away
	name := "epoch"
	if work.Epoch.Rows != training.Samples {
		name = "epoch, packed"
	}
	fmt.Fprintf(w, "\nsteps of one %s\t%d with batches of %d, %d tokens\n", name, work.Epoch.Batches, work.BatchSize, work.Epoch.Tokens)
	fmt.Fprintf(w, "job\t%d steps, %d tokens trained on, %d evaluated\n", work.Steps, work.TrainTokens, work.EvalTokens)
	speed, err := app.TrainingSpeed(cmd.Context(), c)
	if err != nil {
		fmt.Fprintf(w, "time\tunknown: %v\n", err)
	} else {
		fmt.Fprintf(w, "time\t%s on this machine for --n-epochs %d (%s)\n", about(work.Time(speed)), o.epochs, kind)
	}
	printPrice(w)
	return nil
}

// printPrice prints what a job costs: an appliance knows no prices, it is its
// owner's.
func printPrice(out io.Writer) { fmt.Fprintln(out, "price\t0.00 (no price is configured)") }

// about says a duration as coarsely as it is known.
func about(d time.Duration) string {
	const day = 24 * time.Hour
	round := func(unit time.Duration) int64 { return int64((d + unit/2) / unit) }
	switch {
	case d < 10*time.Second:
		return "less than 10 s"
	case d < 90*time.Second:
		return fmt.Sprintf("about %d s", 10*round(10*time.Second))
	case d < 90*time.Minute:
		return fmt.Sprintf("about %d min", round(time.Minute))
	case d < 2*day:
		return fmt.Sprintf("about %d h", round(time.Hour))
	}
	return fmt.Sprintf("about %d days", round(day))
}
