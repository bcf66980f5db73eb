package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is one file mapped read-only from its first byte.
type mapping struct {
	name  string
	file  *os.File
	bytes []byte
}

// mapFile checks a safetensors file and maps it. The header is read through
// the file, not the mapping, so that nothing faults here.
func mapFile(dir, name string) (_ *mapping, records []record, start int64, err error) {
	fail := func(text string, err error) (*mapping, []record, int64, error) {
		return nil, nil, 0, &Error{File: name, Offset: -1, Reason: text, Err: err}
	}
	path := filepath.Join(dir, name)
	// Stat first: opening a FIFO would wait for its writer.
	if info, err := os.Stat(path); err != nil {
		return fail("open", err)
	} else if !info.Mode().IsRegular() {
		return fail("not a regular file", nil)
	}
	f, err := os.Open(path)
	if err != nil {
		return fail("open", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the error that matters is already there
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return fail("open", err)
	}
	records, start, err = readHeader(f, info.Size())
	if err != nil {
		var r *reason
		if errors.As(err, &r) {
			err = &Error{File: name, Tensor: r.tensor, Offset: r.offset, Reason: r.text, Err: r.err}
		}
		return nil, nil, 0, err
	}
	if int64(int(info.Size())) != info.Size() {
		return fail("too large for this machine", nil)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fail("map into memory", err)
	}
	return &mapping{name: name, file: f, bytes: data}, records, start, nil
}

func (m *mapping) close() error {
	if m.bytes == nil {
		return nil
	}
	data := m.bytes
	m.bytes = nil
	return errors.Join(unix.Munmap(data), m.file.Close())
}

// release tells the kernel that the pages of a byte range are not needed in
// memory now; they are read from the file again when they are.
func (m *mapping) release(first, length int) {
	page := os.Getpagesize()
	last := (first + length) / page * page // the next tensor may share the page
	first = first / page * page
	if first < last {
		_ = unix.Madvise(m.bytes[first:last], unix.MADV_DONTNEED) // advice only
	}
}

// whole fails when the file is shorter than it was: the rest of its last page
// then reads as zeros, without a fault.
func (m *mapping) whole() error {
	info, err := m.file.Stat()
	if err != nil {
		return &Error{File: m.name, Offset: -1, Reason: "check the size", Err: err}
	}
	if info.Size() < int64(len(m.bytes)) {
		return &Error{File: m.name, Offset: info.Size(), Reason: fmt.Sprintf("the file was cut short: it had %d bytes when it was opened", len(m.bytes))}
	}
	return nil
}

// Guard calls fn, which reads the bytes of entries of this archive on this
// goroutine. When a file was cut short after Open it returns an *Error instead
// of crashing or letting zeros pass for weights.
func (a *Archive) Guard(fn func() error) error { return guard(fn, a.maps...) }

func guard(fn func() error, maps ...*mapping) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			m, offset := fault(p, maps)
			if m == nil {
				panic(p)
			}
			err = &Error{File: m.name, Offset: offset, Reason: "cannot be read any more: the file was cut short or its disk failed"}
		}
	}()
	if err := fn(); err != nil {
		return err
	}
	for _, m := range maps {
		if err := m.whole(); err != nil {
			return err
		}
	}
	return nil
}

// fault finds the mapping and the byte of a recovered memory fault.
func fault(p any, maps []*mapping) (*mapping, int64) {
	f, ok := p.(interface{ Addr() uintptr })
	if !ok {
		return nil, 0
	}
	for _, m := range maps {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))
		if f.Addr() >= base && f.Addr() < base+uintptr(len(m.bytes)) {
			return m, int64(f.Addr() - base)
		}
	}
	return nil, 0
}
