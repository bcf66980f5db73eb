package object

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// body reads the source of a Put: it hashes and counts, stops with the context,
// and ends without an error only at the announced size.
type body struct {
	ctx  context.Context
	r    io.Reader
	want int64 // -1: any
	n    int64
	hash hash.Hash
}

func newBody(ctx context.Context, r io.Reader, size int64) (*body, error) {
	if size < -1 {
		return nil, fmt.Errorf("%w: %d bytes announced", ErrSize, size)
	}
	return &body{ctx: ctx, r: r, want: size, hash: sha256.New()}, nil
}

// Read never passes on an io.ErrUnexpectedEOF of the source as it is, which its
// callers could take for the end.
func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	b.hash.Write(p[:n])
	switch {
	case b.want >= 0 && b.n > b.want:
		return n, fmt.Errorf("%w: more than the announced %d bytes", ErrSize, b.want)
	case errors.Is(err, io.EOF) && b.want >= 0 && b.n < b.want:
		return n, fmt.Errorf("%w: %d of the announced %d bytes", ErrSize, b.n, b.want)
	case err == io.EOF: // plain, as io.Reader asks for
		return n, io.EOF
	case err != nil:
		return n, fmt.Errorf("read the body: %w", err)
	}
	return n, nil
}

// fill reads until p is full or the body ends, which it reports as end.
func (b *body) fill(p []byte) (n int, end bool, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = b.Read(p[n:])
		n += m
	}
	if err == io.EOF {
		return n, true, nil
	}
	return n, false, err
}

// info describes what was read.
func (b *body) info(key string) Info {
	return Info{Key: key, Size: b.n, SHA256: hex.EncodeToString(b.hash.Sum(nil))}
}

// boundReader ends the reader of a Get with its context.
type boundReader struct {
	ctx context.Context
	key string
	r   io.Reader
	c   io.Closer
}

func (b *boundReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read object %q: %w", b.key, err)
	}
	return n, err
}

func (b *boundReader) Close() error { return b.c.Close() }
