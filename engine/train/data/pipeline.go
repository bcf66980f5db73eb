package data

import (
	"bufio"
	"context"
	"io"
	"runtime"
	"sync"
)

// Sizes of a chunk, which bound the memory of a pipeline: two chunks for each
// worker, of at most chunkBytes and one line.
const (
	chunkLines = 256
	chunkBytes = 1 << 20
)

// chunk is a stretch of lines on its way.
type chunk struct {
	first int64 // number of its first line
	lines [][]byte
	bytes int64 // of the file, up to the end of the chunk
	out   []Encoded
	errs  []error
	err   error // of reading behind the last line
	done  chan struct{}
}

// pipeline encodes chunks on several goroutines.
type pipeline struct {
	work chan *chunk
	wg   sync.WaitGroup
	size int
}

func newPipeline(e *Encoder) *pipeline {
	n := max(1, runtime.GOMAXPROCS(0))
	p := &pipeline{work: make(chan *chunk, 2*n), size: 2 * n}
	for range n {
		p.wg.Go(func() {
			for c := range p.work {
				c.encode(e)
			}
		})
	}
	return p
}

func (p *pipeline) close() {
	close(p.work)
	p.wg.Wait()
}

// encode stops at the first bad line: nothing behind it is wanted.
func (c *chunk) encode(e *Encoder) {
	defer close(c.done)
	for _, line := range c.lines {
		out, err := e.Line(line)
		c.out, c.errs = append(c.out, out), append(c.errs, err)
		if err != nil {
			return
		}
	}
}

// feed reads all chunks and takes them in order, at most p.size in flight.
func (p *pipeline) feed(ctx context.Context, r *bufio.Reader, s *scan) error {
	var flight []*chunk
	next, read, end := int64(1), int64(0), false
	for !end || len(flight) > 0 {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if !end && len(flight) < p.size {
			c := readChunk(r, next, read)
			next, read = next+int64(len(c.lines)), c.bytes
			end = c.err != nil
			flight = append(flight, c)
			p.work <- c // has room for all that are in flight
			continue
		}
		c := flight[0]
		flight = flight[1:]
		<-c.done
		if err := c.take(s); err != nil {
			return err
		}
		s.progress(c.bytes)
	}
	return nil
}

// take hands on what became of the lines.
func (c *chunk) take(s *scan) error {
	for i := range c.out {
		if err := s.take(c.first+int64(i), &c.out[i], c.errs[i]); err != nil {
			return err
		}
	}
	if c.err != nil && c.err != io.EOF {
		return s.bad(c.first+int64(len(c.lines)), c.err)
	}
	return nil
}

func readChunk(r *bufio.Reader, first, read int64) *chunk {
	c := &chunk{first: first, bytes: read, done: make(chan struct{})}
	for size := 0; len(c.lines) < chunkLines && size < chunkBytes; {
		line, n, err := readLine(r)
		c.bytes += int64(n)
		if err != nil {
			c.err = err
			break
		}
		c.lines, size = append(c.lines, line), size+len(line)
	}
	return c
}
