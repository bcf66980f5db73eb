package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"athanor/server/api"
)

func fineTunesCommand(f *flags) *cobra.Command {
	return group("fine-tunes", "Train models on your data and watch it",
		createFineTuneCommand(f), previewCommand(f), limitsCommand(f), listFineTunesCommand(f), showFineTuneCommand(f), watchCommand(f),
		eventsCommand(f), metricsCommand(f), checkpointsCommand(f), cancelFineTuneCommand(f), deleteFineTuneCommand(f), downloadCommand(f))
}

// jobPath is the path of an operation on a job.
func jobPath(id string, rest ...string) string {
	return "/fine-tunes/" + url.PathEscape(id) + strings.Join(append([]string{""}, rest...), "/")
}

// job reads a job.
func (c *client) job(ctx context.Context, id string) (*api.FineTune, error) {
	var out api.FineTune
	return &out, c.call(ctx, http.MethodGet, jobPath(id), nil, &out)
}

// events reads all events of a job.
func (c *client) events(ctx context.Context, id string) ([]api.FineTuneEvent, error) {
	var out api.FineTuneEventList
	return out.Data, c.call(ctx, http.MethodGet, jobPath(id, "events"), nil, &out)
}

// metrics reads rows of metrics from a step on, at most resolution of training, 0
// for all.
func (c *client) metrics(ctx context.Context, id string, from, resolution int) ([]map[string]float64, error) {
	q := url.Values{"global_step_from": {strconv.Itoa(from)}}
	if resolution > 0 {
		q.Set("resolution", strconv.Itoa(resolution))
	}
	var out api.FineTuneMetrics
	return out.Metrics, c.call(ctx, http.MethodGet, jobPath(id, "metrics")+"?"+q.Encode(), nil, &out)
}

// finished reports whether nothing follows a status of a job.
func finished(status string) bool {
	return status == "completed" || status == "cancelled" || status == "error"
}

// onJob is a command that does something with the job that its argument names.
func onJob(f *flags, use, short string, do func(cmd *cobra.Command, c *client, id string) error) *cobra.Command {
	return &cobra.Command{Use: use + " ID", Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return withClient(f, cmd, func(c *client) error { return do(cmd, c, args[0]) })
	}}
}

func listFineTunesCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the jobs, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withClient(f, cmd, func(c *client) error { return c.listJobs(cmd.Context(), cmd.OutOrStdout()) })
		},
	}
}

func (c *client) listJobs(ctx context.Context, out io.Writer) error {
	var list api.FineTuneList
	if err := c.call(ctx, http.MethodGet, "/fine-tunes", nil, &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATUS\tBASE\tRESULT\tCREATED")
	for _, j := range list.Data {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", j.ID, j.Status, j.Model, j.ModelOutputName, j.CreatedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}

func showFineTuneCommand(f *flags) *cobra.Command {
	return onJob(f, "show", "Show a job with its settings", func(cmd *cobra.Command, c *client, id string) error {
		j, err := c.job(cmd.Context(), id)
		if err != nil {
			return err
		}
		return showJob(cmd.OutOrStdout(), j)
	})
}

// showJob prints what is known of a job as a table.
func showJob(out io.Writer, j *api.FineTune) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	text := func(name string, v *string) {
		if v != nil && *v != "" {
			row(name, "%s", *v)
		}
	}
	row("id", "%s", j.ID)
	row("status", "%s", j.Status)
	if j.ErrorMessage != "" {
		row("error", "%s", j.ErrorMessage)
	}
	row("base model", "%s", j.Model)
	row("result", "%s", j.ModelOutputName)
	row("training file", "%s", j.TrainingFile)
	text("validation file", j.ValidationFile)
	text("from checkpoint", j.FromCheckpoint)
	text("from hub model", j.FromHubModel)
	if m := j.TrainingMethod; m != nil {
		row("method", "%s", m.Method)
	}
	if t := j.TrainingType; t != nil {
		row("type", "%s", trainingType(t))
	}
	row("epochs", "%d", j.NEpochs)
	row("evaluations", "%d", j.NEvals)
	row("checkpoints", "%d", j.NCheckpoints)
	if j.BatchSize != nil {
		row("batch size", "%d", j.BatchSize.N)
	}
	row("learning rate", "%g", j.LearningRate)
	row("longest sequence", "%d tokens", j.MaxSeqLength)
	if d := j.FineTuneDetails; d != nil {
		if d.TotalSteps > 0 {
			row("steps", "%d of %d", d.Step, d.TotalSteps)
		}
		if j.Status == "pending" || j.Status == "queued" {
			row("jobs before it", "%d", d.QueueDepth)
		}
		text("tracker", d.TrackerURL)
	}
	if j.TokenCount > 0 {
		row("tokens", "%d", j.TokenCount)
	}
	if j.EarlyStopped && j.EarlyStoppingBestStep != nil {
		row("stopped early", "the weights of step %d were selected", *j.EarlyStoppingBestStep)
	}
	return w.Flush()
}

func trainingType(t *api.TrainingType) string {
	if t.LoRAR == nil {
		return t.Type
	}
	text := fmt.Sprintf("%s, rank %d", t.Type, *t.LoRAR)
	if t.LoRAAlpha != nil {
		text += fmt.Sprintf(", alpha %d", *t.LoRAAlpha)
	}
	if t.LoRATrainableModules != nil {
		text += ", " + *t.LoRATrainableModules
	}
	return text
}

func eventsCommand(f *flags) *cobra.Command {
	var follow bool
	cmd := onJob(f, "events", "Print the events of a job", func(cmd *cobra.Command, c *client, id string) error {
		return c.printEvents(cmd.Context(), cmd.OutOrStdout(), id, follow)
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job ends")
	return cmd
}

// printEvents prints the events of a job, with follow until its end.
func (c *client) printEvents(ctx context.Context, out io.Writer, id string, follow bool) error {
	for printed := 0; ; {
		// The status first: events that come after it are not missed.
		j, err := c.job(ctx, id)
		if err != nil {
			return err
		}
		events, err := c.events(ctx, id)
		if err != nil {
			return err
		}
		for _, e := range events[min(printed, len(events)):] {
			fmt.Fprintln(out, eventLine(e))
		}
		printed = len(events)
		if !follow || finished(j.Status) {
			return nil
		}
		if err := pause(ctx, c.poll()); err != nil {
			return err
		}
	}
}

func eventLine(e api.FineTuneEvent) string {
	level := ""
	if e.Level != nil && *e.Level != "info" {
		level = strings.ToUpper(*e.Level) + " "
	}
	return fmt.Sprintf("%s  %-34s %s%s", e.CreatedAt, e.Type, level, printable(e.Message))
}

// printable takes out of a text what would act on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}

func metricsCommand(f *flags) *cobra.Command {
	var resolution int
	var asJSON bool
	cmd := onJob(f, "metrics", "Print the metrics of a job, a row for each step and each evaluation", func(cmd *cobra.Command, c *client, id string) error {
		if resolution < 0 {
			return fmt.Errorf("resolution: must not be negative, got %d", resolution)
		}
		rows, err := c.metrics(cmd.Context(), id, 0, resolution)
		if err != nil {
			return err
		}
		return printMetrics(cmd.OutOrStdout(), rows, asJSON)
	})
	cmd.Flags().IntVar(&resolution, "resolution", 0, "most rows of training, evenly spread, 0 = all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object per line")
	return cmd
}

func printMetrics(out io.Writer, rows []map[string]float64, asJSON bool) error {
	for _, row := range rows {
		line := metricsLine(row)
		if asJSON {
			data, err := json.Marshal(row)
			if err != nil {
				return err
			}
			line = string(data)
		}
		fmt.Fprintln(out, line)
	}
	return nil
}

// stepOf is the step of a row, and whether it is of an evaluation.
func stepOf(row map[string]float64) (step int, eval bool) {
	if at, ok := row["eval/global_step"]; ok {
		return int(at), true
	}
	_, eval = row["eval/loss"]
	return int(row["train/global_step"]), eval
}

// metricsLine is a row in one line: the step first, then the names in order.
func metricsLine(row map[string]float64) string {
	step, eval := stepOf(row)
	kind := "step"
	if eval {
		kind = "eval"
	}
	names := make([]string, 0, len(row))
	for name := range row {
		if name != "train/global_step" && name != "eval/global_step" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", kind, step)
	for _, name := range names {
		_, short, _ := strings.Cut(name, "/")
		fmt.Fprintf(&b, "  %s %.4g", short, row[name])
	}
	return b.String()
}

func checkpointsCommand(f *flags) *cobra.Command {
	return onJob(f, "checkpoints", "List the checkpoints of a job", func(cmd *cobra.Command, c *client, id string) error {
		var list api.FineTuneCheckpointList
		if err := c.call(cmd.Context(), http.MethodGet, jobPath(id, "checkpoints"), nil, &list); err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "STEP\tKIND\tTYPE\tMODEL\tCREATED")
		for _, p := range list.Data {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", p.Step, p.Checkpoint, p.CheckpointType, p.ObjectName, p.CreatedAt)
		}
		return w.Flush()
	})
}

func cancelFineTuneCommand(f *flags) *cobra.Command {
	return onJob(f, "cancel", "Cancel a job", func(cmd *cobra.Command, c *client, id string) error {
		var j api.FineTune
		if err := c.call(cmd.Context(), http.MethodPost, jobPath(id, "cancel"), nil, &j); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", j.ID, j.Status)
		return nil
	})
}

func deleteFineTuneCommand(f *flags) *cobra.Command {
	var force bool
	cmd := onJob(f, "delete", "Delete a job and what belongs to it alone", func(cmd *cobra.Command, c *client, id string) error {
		var out api.FineTuneDeleted
		if err := c.call(cmd.Context(), http.MethodDelete, jobPath(id)+"?force="+strconv.FormatBool(force), nil, &out); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), out.Message)
		return nil
	})
	cmd.Flags().BoolVar(&force, "force", false, "cancel the job first if it has not ended")
	return cmd
}

func limitsCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "limits MODEL", Short: "Show how a model can be trained", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(f, cmd, func(c *client) error {
				var l api.FineTuneLimits
				if err := c.call(cmd.Context(), http.MethodGet, "/fine-tunes/models/limits?model_name="+url.QueryEscape(args[0]), nil, &l); err != nil {
					return err
				}
				return showLimits(cmd.OutOrStdout(), &l)
			})
		},
	}
}

func showLimits(out io.Writer, l *api.FineTuneLimits) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "model\t%s\n", l.ModelName)
	fmt.Fprintf(w, "LoRA rank\tat most %d, default %d\n", l.LoRATraining.MaxRank, l.LoRATraining.DefaultRank)
	fmt.Fprintf(w, "LoRA modules\t%s\n", strings.Join(l.LoRATraining.TargetModules, ", "))
	fmt.Fprintf(w, "batch size\t%d to %d, DPO at most %d\n", l.LoRATraining.MinBatchSize, l.LoRATraining.MaxBatchSize, l.LoRATraining.MaxBatchSizeDPO)
	full := "no"
	if l.SupportsFull {
		full = fmt.Sprintf("yes, batch size %d to %d", l.FullTraining.MinBatchSize, l.FullTraining.MaxBatchSize)
	}
	fmt.Fprintf(w, "all weights\t%s\n", full)
	fmt.Fprintf(w, "sequence length\t%d to %d tokens, DPO at most %d\n", l.MinMaxSeqLength, l.MaxSeqLengthSFT, l.MaxSeqLengthDPO)
	fmt.Fprintf(w, "learning rate\t%g to %g\n", l.MinLearningRate, l.MaxLearningRate)
	fmt.Fprintf(w, "epochs, evaluations, checkpoints\tat most %d, %d, %d\n", l.MaxNumEpochs, l.MaxNumEvals, l.MaxNumCheckpoints)
	return w.Flush()
}
