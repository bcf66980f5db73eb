//go:build cgo

package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"athanor/engine/compute"
	"athanor/engine/tensor"
)

// mapFrom is the size in bytes from which memory comes straight from the kernel,
// zeroed page by page on first use.
const mapFrom = 256 << 10

// memory is one allocation; it is freed when the last buffer over it closes.
type memory struct {
	bytes    []byte
	block    unsafe.Pointer // of C, nil when the bytes are mapped
	borrowed bool           // the bytes are not ours to free
	refs     atomic.Int32
}

func newMemory(size int) (*memory, error) {
	if size >= mapFrom {
		b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return nil, fmt.Errorf("map %d bytes: %w", size, err)
		}
		return &memory{bytes: b}, nil
	}
	p := C.ort_alloc(C.size_t(size))
	if p == nil {
		return nil, fmt.Errorf("out of memory for %d bytes", size)
	}
	return &memory{bytes: unsafe.Slice((*byte)(p), size), block: p}, nil
}

func (m *memory) release() error {
	if m.refs.Add(-1) > 0 {
		return nil
	}
	b := m.bytes
	m.bytes = nil
	if m.borrowed {
		return nil
	}
	if m.block == nil {
		return syscall.Munmap(b)
	}
	C.free(m.block)
	return nil
}

// buffer implements compute.Buffer: a window on a memory with type and shape.
type buffer struct {
	mem    *memory
	data   []byte // nil once closed
	dtype  tensor.DType
	shape  []int
	value  *C.OrtValue // made by the first run that uses it
	closed bool
}

func newBuffer(mem *memory, data []byte, dtype tensor.DType, shape []int) *buffer {
	mem.refs.Add(1)
	live.Add(1)
	return &buffer{mem: mem, data: data, dtype: dtype, shape: slices.Clone(shape)}
}

func (b *buffer) DType() tensor.DType { return b.dtype }
func (b *buffer) Shape() []int        { return slices.Clone(b.shape) }
func (b *buffer) Bytes() []byte       { return b.data }

// View is a Buffer over part of the same memory, which stays valid until all of
// its buffers are closed.
func (b *buffer) View(offset int, shape ...int) (compute.Buffer, error) {
	if b.closed {
		return nil, compute.ErrClosed
	}
	n, err := elements(shape)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	size := b.dtype.Size()
	if size == 0 {
		return nil, fmt.Errorf("view: of %s, whose elements share bytes", b.dtype)
	}
	if have := len(b.data) / size; offset < 0 || offset > have || n > have-offset {
		return nil, fmt.Errorf("view: elements %d to %d+%d of a buffer that has %d", offset, offset, n, have)
	}
	from := offset * size
	return newBuffer(b.mem, b.data[from:from+n*size:from+n*size], b.dtype, shape), nil
}

// Close is idempotent. It must not run beside a Run that uses the buffer.
func (b *buffer) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.data = nil
	if b.value != nil {
		C.ort_value_free(b.value)
		b.value = nil
	}
	live.Add(-1)
	return b.mem.release()
}

// ortValue is the library's tensor over the buffer, kept for the next run.
func (b *buffer) ortValue() (*C.OrtValue, error) {
	if b.closed {
		return nil, compute.ErrClosed
	}
	if b.value != nil {
		return b.value, nil
	}
	dims := make([]C.int64_t, len(b.shape)+1) // one more, so that a scalar has an address too
	for i, d := range b.shape {
		dims[i] = C.int64_t(d)
	}
	typ, err := elementType(b.dtype)
	if err != nil {
		return nil, err
	}
	err = message(C.ort_value_new(unsafe.Pointer(unsafe.SliceData(b.data)), C.size_t(len(b.data)),
		&dims[0], C.size_t(len(b.shape)), typ, &b.value))
	return b.value, err
}

// own checks that a buffer came from this package.
func own(b compute.Buffer) (*buffer, error) {
	o, ok := b.(*buffer)
	if !ok || o == nil {
		return nil, errors.New("the buffer belongs to another runtime")
	}
	return o, nil
}
