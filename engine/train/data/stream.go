package data

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// Stream makes a Source of content that can only be read from its beginning on.
// JSON lines are read as they come, once; a Parquet file, whose description is at its
// end, is copied to a temporary file. done must be called when the source is not
// needed any more; it does not close r.
func Stream(kind string, r io.Reader) (src Source, done func() error, err error) {
	if kind != "parquet" {
		return Source{Type: kind, Content: &sequential{r: r}, Size: math.MaxInt64}, func() error { return nil }, nil
	}
	f, err := os.CreateTemp("", "athanor-dataset-")
	if err != nil {
		return src, nil, fmt.Errorf("copy the dataset: %w", err)
	}
	done = func() error { return errors.Join(f.Close(), os.Remove(f.Name())) }
	n, err := io.Copy(f, r)
	if err != nil {
		return src, nil, errors.Join(fmt.Errorf("copy the dataset: %w", err), done())
	}
	return Source{Type: kind, Content: f, Size: n}, done, nil
}

// sequential lets a stream be read as a file, one stretch after the other.
type sequential struct {
	r  io.Reader
	at int64
}

func (s *sequential) ReadAt(p []byte, at int64) (int, error) {
	if at != s.at {
		return 0, errors.New("a stream cannot be read twice")
	}
	n, err := io.ReadFull(s.r, p)
	s.at += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}
