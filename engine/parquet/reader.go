package parquet

import (
	"errors"
	"fmt"
	"io"
)

// Reader reads the rows of a file one after the other. It is for one goroutine.
type Reader struct {
	columns [3]*lists // nil where the file has no such column
	raw     [3]list
	rows    int64
	read    int64
	row     Row
}

// Row is a sequence of tokens. It is good until the next call of Next.
type Row struct {
	InputIDs      []int64
	AttentionMask []int64 // nil where the file has none
	Labels        []int64 // nil where the file has none
	problem       string
}

// Open checks the metadata of a file of size bytes. Errors are *FormatError for
// a file that cannot be read, in words for the user, and those of r.
func Open(r io.ReaderAt, size int64) (*Reader, error) {
	r = source{r}
	f, err := readFooter(r, size)
	if err != nil {
		return nil, err
	}
	columns, err := f.columns()
	if err != nil {
		return nil, err
	}
	out := &Reader{rows: f.rows}
	for i, c := range columns {
		if c.name != "" {
			out.columns[i] = &lists{c: c, file: r, groups: f.groups}
		}
	}
	return out, nil
}

// Rows is the number of rows that the file says it has.
func (r *Reader) Rows() int64 { return r.rows }

// Next reads a row, io.EOF after the last. A *FormatError is a file that cannot
// be read on.
func (r *Reader) Next() (*Row, error) {
	ends := 0
	open := 0
	for i, c := range r.columns {
		if c == nil {
			continue
		}
		open++
		switch err := c.next(&r.raw[i]); {
		case err == io.EOF:
			ends++
		case err != nil:
			return nil, broken(err)
		}
	}
	if ends > 0 {
		if ends != open || r.read != r.rows {
			return nil, wrong("the columns have different numbers of rows")
		}
		return nil, io.EOF
	}
	r.read++
	r.row = Row{InputIDs: r.raw[0].values}
	if r.columns[1] != nil {
		r.row.AttentionMask = r.raw[1].values
	}
	if r.columns[2] != nil {
		r.row.Labels = r.raw[2].values
	}
	r.row.problem = r.check()
	return &r.row, nil
}

// source tells failures to read from what is wrong with the bytes.
type source struct{ io.ReaderAt }

func (s source) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(p, at)
	if err != nil && err != io.EOF {
		err = &readFailure{err}
	}
	return n, err
}

type readFailure struct{ err error }

func (e *readFailure) Error() string { return e.err.Error() }

func (e *readFailure) Unwrap() error { return e.err }

// broken makes what is wrong with the bytes of a file a *FormatError.
func broken(err error) error {
	var known *FormatError
	var read *readFailure
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &read):
		return read.err
	}
	return wrong("%v", err)
}

// noLoss is the label of a token that carries no loss.
const noLoss = -100

// maxID is the greatest token id.
const maxID = 1<<31 - 1

// Problem is what is wrong with the row, beginning with the place in it, or "".
func (r *Row) Problem() string { return r.problem }

// check looks at what was read and at how the columns go together.
func (r *Reader) check() string {
	for i, c := range r.columns {
		if c == nil {
			continue
		}
		switch l := &r.raw[i]; {
		case l.null:
			return fmt.Sprintf("`%s` must not be null", names[i])
		case l.holes:
			return fmt.Sprintf("`%s` must not hold null", names[i])
		case l.long:
			return fmt.Sprintf("`%s` must have at most %d values", names[i], MaxTokens)
		}
	}
	row := &r.row
	if len(row.InputIDs) == 0 {
		return "`input_ids` must not be empty"
	}
	for i, id := range row.InputIDs {
		if id < 0 || id > maxID {
			return fmt.Sprintf("`input_ids[%d]` must be a token id between 0 and %d, not %d", i, maxID, id)
		}
	}
	if row.AttentionMask != nil && len(row.AttentionMask) != len(row.InputIDs) {
		return fmt.Sprintf("`attention_mask` must have as many values as `input_ids`, %d, not %d", len(row.InputIDs), len(row.AttentionMask))
	}
	if row.Labels != nil && len(row.Labels) != len(row.InputIDs) {
		return fmt.Sprintf("`labels` must have as many values as `input_ids`, %d, not %d", len(row.InputIDs), len(row.Labels))
	}
	if reason := row.checkMask(); reason != "" {
		return reason
	}
	return row.checkLabels()
}

// checkMask wants ones in one stretch: a sequence has no holes.
func (r *Row) checkMask() string {
	from, to := r.Attended()
	for i, m := range r.AttentionMask {
		if m != 0 && m != 1 {
			return fmt.Sprintf("`attention_mask[%d]` must be 0 or 1, not %d", i, m)
		}
		if m == 0 && i >= from && i < to {
			return fmt.Sprintf("`attention_mask[%d]` must be 1: zeros are only for padding at the ends", i)
		}
	}
	if from == to {
		return "`attention_mask` must hold a 1"
	}
	return ""
}

// checkLabels wants each label to be the token in its place, or none.
func (r *Row) checkLabels() string {
	from, to := r.Attended()
	trained := 0
	for i := from; i < to; i++ {
		if r.Labels == nil {
			trained = to - from - 1
			break
		}
		switch l := r.Labels[i]; {
		case l == noLoss:
		case l != r.InputIDs[i]:
			return fmt.Sprintf("`labels[%d]` must be -100 or the token in its place, %d, not %d", i, r.InputIDs[i], l)
		case i > from:
			trained++
		}
	}
	if trained == 0 {
		return "no token carries loss: a token with a label is needed behind the first"
	}
	return ""
}

// Attended is the stretch of tokens that are not padding, [from, to), of a row
// without a problem.
func (r *Row) Attended() (from, to int) {
	to = len(r.InputIDs)
	if r.AttentionMask == nil {
		return 0, to
	}
	for from < to && r.AttentionMask[from] == 0 {
		from++
	}
	for to > from && r.AttentionMask[to-1] == 0 {
		to--
	}
	return from, to
}

// Trained reports whether token i carries loss.
func (r *Row) Trained(i int) bool { return r.Labels == nil || r.Labels[i] != noLoss }
