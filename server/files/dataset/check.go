package dataset

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxLine bounds one line in bytes.
const MaxLine = 16 << 20

// Purposes of a file, as in the API.
const (
	FineTune = "fine-tune"
	Eval     = "eval"
	Batch    = "batch-api"
)

// Options of Check.
type Options struct {
	Purpose  string                   // FineTune, Eval or Batch
	Type     string                   // jsonl, csv or parquet
	Problems int                      // how many to keep; 0 means 100
	Progress func(bytes, lines int64) // called now and then; may be nil
	Hashes   *Hashes                  // an empty one that is filled, to compare files; may be nil
}

const keptProblems = 100

func (o *Options) kept() int {
	if o.Problems == 0 {
		return keptProblems
	}
	return o.Problems
}

// Check reads r to its end and checks every line. Parquet is for CheckParquet.
func Check(ctx context.Context, r io.Reader, o Options) (*Report, error) {
	switch {
	case o.Type == "jsonl" && (o.Purpose == FineTune || o.Purpose == Eval || o.Purpose == Batch):
	case o.Type == "csv" && o.Purpose == Eval:
	case o.Type == "parquet" && o.Purpose != FineTune:
		return refuse("the file is Parquet, which is only for training: use JSON lines"), nil
	case o.Type == "csv":
		return refuse("the file is CSV, which is only for evaluation: use JSON lines"), nil
	default:
		return nil, fmt.Errorf("there is no check of %q files for the purpose %q", o.Type, o.Purpose)
	}
	c := newChecker(o)
	lines := &lineReader{r: bufio.NewReaderSize(r, readBuffer), limit: MaxLine}
	check := c.line
	if o.Type == "csv" {
		check = (&table{c: c}).line
	}
	for n := int64(1); ; n++ {
		if n%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			if o.Progress != nil {
				o.Progress(lines.bytes, n)
			}
		}
		line, tooLong, err := lines.next()
		if err == io.EOF {
			check(n, nil, false, true)
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read line %d: %w", n, err)
		}
		check(n, line, tooLong, false)
	}
	return c.finish(), nil
}

// refuse is the report of a file that cannot be looked into.
func refuse(reason string) *Report {
	return &Report{Errors: 1, Problems: []Problem{{1, reason}}}
}

const readBuffer = 1 << 20

// lineReader splits a stream at line feeds.
type lineReader struct {
	r     *bufio.Reader
	limit int
	long  []byte // of a line longer than the reader's buffer
	bytes int64  // read so far
}

// next returns a line without its line feed, good until the next call, or io.EOF
// after the last. Of a line over the limit only that it is too long is known.
func (l *lineReader) next() (line []byte, tooLong bool, err error) {
	l.long = l.long[:0]
	for {
		piece, err := l.r.ReadSlice('\n')
		l.bytes += int64(len(piece))
		if err == bufio.ErrBufferFull {
			if tooLong = tooLong || len(l.long)+len(piece) > l.limit; !tooLong {
				l.long = append(l.long, piece...)
			}
			continue
		}
		if err != nil && err != io.EOF {
			return nil, false, err
		}
		if err == io.EOF && len(piece) == 0 && len(l.long) == 0 && !tooLong {
			return nil, false, io.EOF
		}
		piece = bytes.TrimSuffix(piece, []byte{'\n'})
		if tooLong || len(l.long)+len(piece) > l.limit {
			return nil, true, nil
		}
		if len(l.long) > 0 {
			l.long = append(l.long, piece...)
			piece = l.long
		}
		return bytes.TrimSuffix(piece, []byte{'\r'}), false, nil
	}
}

// checker checks the lines of one file.
type checker struct {
	o      Options
	report *Report
	seen   *Hashes
	d      document
}

func newChecker(o Options) *checker {
	c := &checker{o: o, report: &Report{}, seen: o.Hashes}
	if c.seen == nil {
		c.seen = &Hashes{}
	}
	return c
}

// line checks one line of JSON.
func (c *checker) line(n int64, b []byte, tooLong, end bool) {
	if end {
		return
	}
	c.report.Lines++
	if tooLong {
		c.report.add(n, fmt.Sprintf("the line is longer than %d bytes", MaxLine), c.o.kept())
		return
	}
	reason := c.text(b, n == 1)
	if reason == "" {
		reason = c.d.parse(b)
	}
	if reason == "" {
		reason = c.sample()
	}
	if reason != "" {
		c.report.add(n, reason, c.o.kept())
		return
	}
	c.seen.add(b)
}

// text checks what every line of text must be.
func (c *checker) text(b []byte, first bool) string {
	switch {
	case first && bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return "the line begins with a byte order mark: save the file as UTF-8 without one"
	case len(bytes.TrimSpace(b)) == 0:
		return "the line is empty"
	case !utf8.Valid(b):
		at := 0
		for at < len(b) {
			r, size := utf8.DecodeRune(b[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		return fmt.Sprintf("the line is not valid UTF-8: byte %d is 0x%02x", at+1, b[at])
	}
	return ""
}

// sample checks the parsed line by the rules of the file's purpose.
func (c *checker) sample() string {
	if k := c.d.nodes[0].kind; k != object {
		return fmt.Sprintf("the line must be a JSON object, not %s", k)
	}
	switch c.o.Purpose {
	case FineTune:
		return c.training()
	case Batch:
		return c.batch()
	}
	return ""
}

// finish completes the report.
func (c *checker) finish() *Report {
	r := c.report
	if r.Lines == 0 && r.Errors == 0 {
		r.add(1, "the file holds no samples", c.o.kept())
	}
	r.Duplicates, r.Uncompared = c.seen.finish(), c.seen.over
	return r
}
