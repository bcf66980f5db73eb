package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"athanor/server/api"
)

const (
	screenWidth = 78  // characters of a line on a terminal
	chartHeight = 10  // lines
	chartRows   = 300 // most points that are asked for
	lastEvents  = 5   // shown below the chart
	lastEvals   = 6
)

func watchCommand(f *flags) *cobra.Command {
	return onJob(f, "watch", "Show the progress, the losses and the events of a job until it ends", func(cmd *cobra.Command, c *client, id string) error {
		return c.watch(cmd.Context(), cmd.OutOrStdout(), id)
	})
}

// watching shows a job until it ends: on a terminal as a picture that is drawn
// again, elsewhere as a line for each event, each evaluation and each tenth of the
// steps.
type watching struct {
	client   *client
	id       string
	out      io.Writer
	terminal bool

	lines  int // of the last picture
	events int // printed
	step   int // of the last row that was seen
	evals  int // printed
	tenth  int // of the steps, printed
}

// run returns nil for a job that completed and an error that says why for another.
func (w *watching) run(ctx context.Context) error {
	for {
		j, err := w.look(ctx)
		if err == nil && finished(j.Status) {
			return w.outcome(j)
		}
		if err == nil {
			err = pause(ctx, w.client.poll())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped watching, not the job: athanor fine-tunes watch %s goes on, cancel %s ends it", w.id, w.id)
		}
		if err != nil {
			return err
		}
	}
}

// look shows how the job is now.
func (w *watching) look(ctx context.Context) (*api.FineTune, error) {
	j, err := w.client.job(ctx, w.id)
	if err != nil {
		return nil, err
	}
	if w.terminal {
		return j, w.draw(ctx, j)
	}
	return j, w.print(ctx, j)
}

// outcome says how the job ended.
func (w *watching) outcome(j *api.FineTune) error {
	switch {
	case j.Status == "completed":
		fmt.Fprintf(w.out, "completed. Speak to it with: athanor chat --model %s\n", j.ModelOutputName)
		return nil
	case j.Status == "cancelled":
		return errors.New("the job was cancelled")
	case j.ErrorMessage != "":
		return fmt.Errorf("the job failed: %s", printable(j.ErrorMessage))
	}
	return errors.New("the job failed; athanor fine-tunes events " + j.ID + " says why")
}

// print writes what is new in lines.
func (w *watching) print(ctx context.Context, j *api.FineTune) error {
	// Rows of the last step are asked for again: its evaluation may follow.
	rows, err := w.client.metrics(ctx, w.id, w.step, 0)
	if err != nil {
		return err
	}
	events, err := w.client.events(ctx, w.id)
	if err != nil {
		return err
	}
	for _, e := range events[min(w.events, len(events)):] {
		fmt.Fprintln(w.out, eventLine(e))
	}
	w.events = len(events)
	total := 0
	if j.FineTuneDetails != nil {
		total = j.TotalSteps
	}
	for _, row := range rows {
		switch step, eval := stepOf(row); {
		case eval && step > w.evals:
			w.evals = step
			fmt.Fprintln(w.out, metricsLine(row))
		case !eval && step > w.step:
			w.step = step
			if total > 0 && step*10/total > w.tenth {
				w.tenth = step * 10 / total
				fmt.Fprintf(w.out, "%3d%%  %s\n", step*100/total, metricsLine(row))
			}
		}
	}
	return nil
}

// draw replaces the last picture.
func (w *watching) draw(ctx context.Context, j *api.FineTune) error {
	rows, err := w.client.metrics(ctx, w.id, 0, chartRows)
	if err != nil {
		return err
	}
	events, err := w.client.events(ctx, w.id)
	if err != nil {
		return err
	}
	lines := picture(j, rows, events)
	var b strings.Builder
	if w.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", w.lines) // up, and clear what is below
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	w.lines = len(lines)
	_, err = io.WriteString(w.out, b.String())
	return err
}

// picture is a job in lines of at most screenWidth characters.
func picture(j *api.FineTune, rows []map[string]float64, events []api.FineTuneEvent) (lines []string) {
	lines = append(lines, j.ID+"  "+j.Status, j.Model+" -> "+j.ModelOutputName, progressLine(j), "")
	losses, evals := split(rows)
	if len(losses) > 1 {
		chart := asciigraph.Plot(losses, asciigraph.Height(chartHeight), asciigraph.Width(screenWidth-12), asciigraph.Precision(3),
			asciigraph.Caption("training loss"))
		lines = append(append(lines, strings.Split(chart, "\n")...), "")
	}
	if len(evals) > 0 {
		best := 0
		for i, row := range evals {
			if row["eval/loss"] < evals[best]["eval/loss"] {
				best = i
			}
		}
		lines = append(lines, "evaluations")
		for i := max(0, len(evals)-lastEvals); i < len(evals); i++ {
			mark := ""
			if i == best {
				mark = "  (best)"
			}
			lines = append(lines, "  "+metricsLine(evals[i])+mark)
		}
		lines = append(lines, "")
	}
	for _, e := range events[max(0, len(events)-lastEvents):] {
		at := e.CreatedAt
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			at = t.Local().Format(time.TimeOnly)
		}
		lines = append(lines, at+"  "+printable(e.Message))
	}
	for i, line := range lines {
		lines[i] = cut(line, screenWidth)
	}
	return lines
}

// split takes the losses of steps and the rows of evaluations apart.
func split(rows []map[string]float64) (losses []float64, evals []map[string]float64) {
	for _, row := range rows {
		if _, eval := stepOf(row); eval {
			evals = append(evals, row)
		} else if v, ok := row["train/loss"]; ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			losses = append(losses, v)
		}
	}
	return losses, evals
}

// progressLine is a bar with the steps and the time that is left.
func progressLine(j *api.FineTune) string {
	d := j.FineTuneDetails
	if d == nil || d.TotalSteps == 0 {
		if d != nil && d.QueueDepth > 0 {
			return fmt.Sprintf("%d jobs come before this one", d.QueueDepth)
		}
		return "not training yet"
	}
	const width = 30
	done := min(width, d.Step*width/d.TotalSteps)
	line := fmt.Sprintf("[%s%s] %d of %d steps", strings.Repeat("#", done), strings.Repeat(".", width-done), d.Step, d.TotalSteps)
	if p := j.Progress; p.EstimateAvailable {
		line += fmt.Sprintf(", about %s left", time.Duration(p.SecondsRemaining)*time.Second)
	}
	return line
}

// cut shortens a line to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-3]) + "..."
}
