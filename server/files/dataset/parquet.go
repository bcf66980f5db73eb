package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"

	"athanor/engine/parquet"
)

// CheckParquet checks every row of a Parquet file of size bytes, which is for
// training only. Rows count as lines.
func CheckParquet(ctx context.Context, r io.ReaderAt, size int64, o Options) (*Report, error) {
	o.Type = "parquet"
	if o.Purpose != FineTune {
		return Check(ctx, nil, o)
	}
	c := newChecker(o)
	file, err := parquet.Open(r, size)
	for n := int64(1); err == nil; n++ {
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if o.Progress != nil {
				o.Progress(size*(n-1)/max(file.Rows(), n), n)
			}
		}
		var row *parquet.Row
		if row, err = file.Next(); err == nil {
			c.row(n, row)
		}
	}
	var broken *parquet.FormatError
	switch {
	case errors.As(err, &broken):
		c.report.add(c.report.Lines+1, broken.Reason, o.kept())
	case err != io.EOF:
		return nil, err
	}
	return c.finish(), nil
}

// row checks one row.
func (c *checker) row(n int64, row *parquet.Row) {
	c.report.Lines++
	c.report.Format = Tokenized
	if reason := row.Problem(); reason != "" {
		c.report.add(n, reason, c.o.kept())
		return
	}
	var h maphash.Hash
	h.SetSeed(hashSeed)
	var b [8]byte
	for _, list := range [][]int64{row.InputIDs, row.AttentionMask, row.Labels} {
		for _, v := range list {
			binary.LittleEndian.PutUint64(b[:], uint64(v))
			_, _ = h.Write(b[:]) // never fails
		}
	}
	c.seen.put(h.Sum64())
}
