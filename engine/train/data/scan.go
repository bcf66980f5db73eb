package data

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"athanor/engine"
	"athanor/engine/parquet"
)

// maxLine bounds one line in bytes, as in validation.
const maxLine = 16 << 20

// visitor takes what a line became; it is called in the order of the file.
type visitor func(line int64, e *Encoded) error

// Source is the content of a dataset.
type Source struct {
	Type    string // jsonl or parquet
	Content io.ReaderAt
	Size    int64 // bytes
}

// Scan encodes a dataset and hands each sample to visit, in order. Its memory does
// not grow with the dataset. progress, which may be nil, is told now and then how
// many bytes are done. A line that cannot be trained on ends the scan with a
// *engine.DataError, whose File is name, and an error of visit with that.
func Scan(ctx context.Context, e *Encoder, src Source, name string, progress func(done, total int64), visit func(line int64, e *Encoded) error) error {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	s := &scan{e: e, name: name, visit: visit, progress: func(done int64) { progress(done, src.Size) }}
	var err error
	switch src.Type {
	case "jsonl":
		err = s.lines(ctx, io.NewSectionReader(src.Content, 0, src.Size))
	case "parquet":
		err = s.rows(ctx, src.Content, src.Size)
	default:
		return &engine.DataError{File: name, Message: fmt.Sprintf("a %.40q file cannot be trained on", src.Type)}
	}
	if err == nil && s.n == 0 {
		err = &engine.DataError{File: name, Message: "the file holds no samples"}
	}
	if err == nil {
		progress(src.Size, src.Size)
	}
	return err
}

// scanFile is Scan of a file on disk.
func scanFile(ctx context.Context, e *Encoder, file engine.DataFile, name string, progress func(done, total int64), visit visitor) error {
	f, err := os.Open(file.Path)
	if err != nil {
		return fmt.Errorf("open the %s file: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the %s file: %w", name, err)
	}
	return Scan(ctx, e, Source{file.Type, f, info.Size()}, name, progress, visit)
}

// scan is a scan under way.
type scan struct {
	e        *Encoder
	name     string
	visit    visitor
	progress func(done int64)

	n      int64  // lines so far
	format string // of all lines
}

// bad makes err the error of a line.
func (s *scan) bad(line int64, err error) error {
	return &engine.DataError{File: s.name, Line: line, Message: fmt.Sprintf("Line %d: %v", line, err)}
}

// take checks and hands on what line n became.
func (s *scan) take(n int64, e *Encoded, err error) error {
	if err == nil && s.format != "" && s.format != e.Format {
		err = fmt.Errorf("the line has the %s format, the lines before have the %s format", e.Format, s.format)
	}
	if err != nil {
		return s.bad(n, err)
	}
	s.n, s.format = n, e.Format
	return s.visit(n, e)
}

// lines encodes a JSONL file on all processors, a chunk of lines at a time, and
// takes the results in order.
func (s *scan) lines(ctx context.Context, r io.Reader) error {
	p := newPipeline(s.e)
	defer p.close()
	return p.feed(ctx, bufio.NewReaderSize(r, 1<<20), s)
}

// rows encodes a Parquet file, in which rows count as lines.
func (s *scan) rows(ctx context.Context, f io.ReaderAt, size int64) error {
	r, err := parquet.Open(f, size)
	for n := int64(1); err == nil; n++ {
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s.progress(min(size, size*(n-1)/max(r.Rows(), 1)))
		}
		var row *parquet.Row
		if row, err = r.Next(); err != nil {
			break
		}
		e, bad := s.e.Row(row)
		if err := s.take(n, &e, bad); err != nil {
			return err
		}
	}
	var broken *parquet.FormatError
	switch {
	case err == io.EOF:
		return nil
	case errors.As(err, &broken):
		return s.bad(s.n+1, err)
	}
	return fmt.Errorf("read the %s file: %w", s.name, err)
}

// readLine returns a line without its line feed, in memory of its own.
func readLine(r *bufio.Reader) (line []byte, read int, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		read += len(piece)
		if len(line)+len(piece) > maxLine+2 {
			return nil, read, fmt.Errorf("the line is longer than %d bytes", maxLine)
		}
		line = append(line, piece...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF && len(line) > 0 {
			err = nil
		}
		if err != nil {
			return nil, read, err
		}
		line = bytes.TrimSuffix(line, []byte{'\n'})
		return bytes.TrimSuffix(line, []byte{'\r'}), read, nil
	}
}
