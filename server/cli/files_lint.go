package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"athanor/engine/train/data"
	"athanor/server/files/dataset"
)

// lint tokenizes files as training does and prints what comes out.
func (o *checkFlags) lint(cmd *cobra.Command, training, validation *checked) error {
	files, err := modelFiles(o.model)
	if err != nil {
		return err
	}
	opt := data.EncodeOptions{Preference: training.report.Format == dataset.Preference, TrainOnInputs: data.InputsAuto, MaxSeqLength: o.maxLength}
	if o.inputs {
		opt.TrainOnInputs = data.InputsTrue
	}
	e, err := data.NewEncoder(files, opt)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if opt.MaxSeqLength == 0 {
		opt.MaxSeqLength = e.Context()
		if e, err = data.NewEncoder(files, opt); err != nil {
			return fmt.Errorf("model: %w", err)
		}
	}
	var shown []data.PreviewRow
	out := cmd.OutOrStdout()
	for _, c := range []*checked{training, validation} {
		if c == nil {
			continue
		}
		counts, err := o.count(cmd, e, c, func(line int64, enc *data.Encoded) error {
			if c == training && line <= int64(o.show) {
				shown = append(shown, e.Rows(enc)...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s for %s\n", c.name, o.model)
		printCounts(out, counts, opt.MaxSeqLength)
		if counts.Samples == 0 {
			return fmt.Errorf("%s leaves nothing to train on: its samples have the weight 0 or are cut before their answers", c.name)
		}
		if c == training {
			o.printEpoch(out, counts, opt.MaxSeqLength)
		}
	}
	printRows(out, shown, marks(out))
	return nil
}

func (o *checkFlags) count(cmd *cobra.Command, e *data.Encoder, c *checked, visit func(int64, *data.Encoded) error) (*data.Counts, error) {
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.finish()
	progress := func(done, total int64) {
		if bar.terminal {
			bar.show("tokenizing", done, total)
		}
	}
	return data.Count(cmd.Context(), e, c.source, c.name, progress, visit)
}

// printCounts prints how long the samples are.
func printCounts(out io.Writer, c *data.Counts, most int) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "samples\t%d\n", c.Samples)
	fmt.Fprintf(w, "tokens\t%d, of which %d are learnt (%s)\n", c.Tokens, c.Trained, percent(c.Trained, c.Tokens))
	if most > 0 {
		fmt.Fprintf(w, "cut at %d tokens\t%d samples (%s)\n", most, c.Truncated, percent(c.Truncated, c.Samples+c.LeftOut))
	}
	if c.LeftOut > 0 {
		fmt.Fprintf(w, "left out\t%d more samples: what they teach lies behind the cut\n", c.LeftOut)
	}
	fmt.Fprintf(w, "length\tmin %d, p50 %d, p90 %d, p99 %d, max %d\n",
		c.Percentile(0), c.Percentile(0.5), c.Percentile(0.9), c.Percentile(0.99), c.Percentile(1))
	_ = w.Flush() // a terminal that went away
	printHistogram(out, c)
}

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(max(whole, 1)))
}

// buckets and barWidth are the size of a histogram, in lines and characters.
const (
	buckets  = 10
	barWidth = 40
)

// printHistogram draws how many sequences have which length.
func printHistogram(out io.Writer, c *data.Counts) {
	first, last := c.Percentile(0), c.Percentile(1)
	width := (last-first)/buckets + 1
	var counts [buckets]int64
	most := int64(1)
	for n, k := range c.Lengths {
		i := (n - first) / width
		counts[i] += k
		most = max(most, counts[i])
	}
	digits := len(fmt.Sprint(last))
	for i, k := range counts {
		from := first + i*width
		if from > last {
			break
		}
		bar := strings.Repeat("█", int((k*barWidth+most-1)/most))
		fmt.Fprintf(out, "  %*d-%-*d  %s %d\n", digits, from, digits, min(from+width-1, last), bar, k)
	}
}

// printEpoch prints what one pass over the training data takes.
func (o *checkFlags) printEpoch(out io.Writer, c *data.Counts, most int) {
	plain := data.Options{BatchRows: o.batch}
	packed := data.Options{BatchRows: o.batch, Packing: true, RowLength: most}
	for _, p := range []struct {
		name string
		o    data.Options
	}{{"epoch", plain}, {"epoch, packed", packed}} {
		e := c.Epoch(p.o)
		if p.o.Packing && e.Rows == c.Samples {
			continue
		}
		fmt.Fprintf(out, "steps of one %s: %d with batches of %d, %d tokens\n", p.name, e.Batches, o.batch, e.Tokens)
	}
}

// lossMarks stand around tokens that are learnt.
type lossMarks struct{ begin, end string }

func marks(out io.Writer) lossMarks {
	if terminal(out) {
		return lossMarks{"\x1b[32m", "\x1b[0m"}
	}
	return lossMarks{"⟦", "⟧"}
}

// printRows prints samples token by token. Their text comes from anywhere, so nothing
// in it may steer a terminal.
func printRows(out io.Writer, rows []data.PreviewRow, m lossMarks) {
	for i, row := range rows {
		note := ""
		if row.Truncated {
			note = ", cut"
		}
		fmt.Fprintf(out, "\n%s %d: %d tokens, %d learnt%s\n", cmp.Or(row.Answer, "sample"), i+1, row.NumTokens, row.NumTrained, note)
		var b strings.Builder
		at := 0
		put := func(to int) {
			for ; at < to; at++ {
				b.WriteString(row.Tokens[at])
			}
		}
		text := func(s string) string { return strings.Map(harmless, s) }
		for _, s := range row.TrainedSpans {
			put(s[0])
			before := text(b.String())
			b.Reset()
			put(s[1])
			fmt.Fprint(out, before, m.begin, text(b.String()), m.end)
			b.Reset()
		}
		put(len(row.Tokens))
		fmt.Fprintln(out, text(b.String()))
	}
}

// harmless replaces control characters but for the ends of lines, and the marks that
// only this program sets.
func harmless(r rune) rune {
	switch {
	case r == '\n':
		return r
	case r == '\t':
		return ' '
	case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
		return '\uFFFD'
	}
	return r
}
