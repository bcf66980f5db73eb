package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"athanor/engine/train/data"
	"athanor/server/files/dataset"
)

// lint tokenizes files as training does and prints what comes out.
func (o *checkFlags) lint(f *flags, cmd *cobra.Command, training, validation *checked) error {
	config, err := f.config(cmd)
	if err != nil {
		return err
	}
	model, err := openModel(f, cmd, o.model)
	if err != nil {
		return err
	}
	e, length, err := o.encoder(model, training.report.Format == dataset.Preference)
	if err != nil {
		return fmt.Errorf("model %s: %w", o.model, err)
	}
	var shown []sampleRow
	var all [2]*data.Counts
	out := cmd.OutOrStdout()
	for i, c := range []*checked{training, validation} {
		if c == nil {
			continue
		}
		counts, err := o.count(cmd, e, c, func(line int64, enc *data.Encoded) error {
			if c == training && line <= int64(o.show) {
				shown = append(shown, sampleRows(e.Rows(enc))...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s for %s\n", c.name, o.model)
		printCounts(out, counts, length)
		if counts.Samples == 0 {
			return fmt.Errorf("%s leaves nothing to train on: its samples have the weight 0 or are cut before their answers", c.name)
		}
		all[i] = counts
	}
	if err := o.printJob(cmd, config, model, length, all[0], all[1]); err != nil {
		return err
	}
	printRows(out, shown, marksFor(out))
	return nil
}

// encoder makes samples for a model, of at most length tokens.
func (o *checkFlags) encoder(m *baseModel, preference bool) (e *data.Encoder, length int, err error) {
	opt := data.EncodeOptions{Preference: preference, TrainOnInputs: data.InputsAuto, MaxSeqLength: o.maxLength}
	if o.inputs {
		opt.TrainOnInputs = data.InputsTrue
	}
	if e, err = data.NewEncoder(m.files, opt); err != nil {
		return nil, 0, err
	}
	most := e.Context() // 0 = unknown
	if m.context > 0 && (most == 0 || m.context < most) {
		most = m.context
	}
	switch {
	case most > 0 && opt.MaxSeqLength > most:
		return nil, 0, fmt.Errorf("max-seq-length must be at most %d, which is what it reads", most)
	case opt.MaxSeqLength == 0:
		opt.MaxSeqLength = most
		e, err = data.NewEncoder(m.files, opt)
	}
	return e, opt.MaxSeqLength, err
}

// sampleRows are the rows of a line.
func sampleRows(rows []data.PreviewRow) []sampleRow {
	var out []sampleRow
	for _, r := range rows {
		out = append(out, sampleRow{name: cmp.Or(r.Answer, "sample"), tokens: r.Tokens, spans: r.TrainedSpans, learnt: r.NumTrained, truncated: r.Truncated})
	}
	return out
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
