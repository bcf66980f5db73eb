package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
)

// progress shows phases of long work: a bar on a terminal, a plain line per
// phase and per tenth elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	phase    string
	tenth    int64
	bar      *progressbar.ProgressBar
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: terminal(out)}
}

// terminal reports whether a person sits at the other end of a standard stream.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show reports that phase has done a part of total; a total of 0 is unknown.
func (p *progress) show(phase string, done, total int64) {
	if p.terminal {
		p.showBar(phase, done, total)
		return
	}
	if phase != p.phase {
		p.phase, p.tenth = phase, 0
		fmt.Fprintf(p.out, "%s\n", phase)
	}
	if total > 0 && done*10/total > p.tenth {
		p.tenth = done * 10 / total
		fmt.Fprintf(p.out, "%s: %d%%\n", phase, p.tenth*10)
	}
}

func (p *progress) showBar(phase string, done, total int64) {
	if phase != p.phase {
		p.finish()
		p.phase = phase
		if total == 0 {
			total = -1
		}
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(phase),
			progressbar.OptionShowBytes(total > 1<<16), progressbar.OptionSetWidth(30))
	}
	_ = p.bar.Set64(done) // a bar that cannot be drawn must not stop the work
}

// finish ends the line of a bar; it may be called more than once.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
		fmt.Fprintln(p.out)
		p.bar = nil
	}
}
