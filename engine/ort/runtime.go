//go:build cgo

package ort

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	ortgo "github.com/yalue/onnxruntime_go"

	"athanor/engine/compute"
	"athanor/engine/tensor"
)

// Severities of the library's messages.
const (
	severityWarning = 2
	severityError   = 3
	severityFatal   = 4
)

// loaded is the one library of this process.
var loaded struct {
	sync.Mutex // guards the fields below
	path       string
	severity   int
}

var (
	live   atomic.Int64
	logger atomic.Pointer[slog.Logger]
)

// Live is the number of programs, buffers and views that are open in this
// process; tests compare it with what it was before.
func Live() int { return int(live.Load()) }

// ortRuntime implements compute.Runtime.
type ortRuntime struct {
	name   string
	closed atomic.Bool
}

// Open loads the library and returns the runtime on it. Opening the same
// library again gives another handle on the same environment; another library
// is refused with ErrLoaded, because a process can hold only one.
func Open(opt Options) (compute.Runtime, error) {
	path, err := filepath.EvalSymlinks(opt.Library)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open ONNX Runtime: %w", err)
	}
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.path != "" && loaded.path != path {
		return nil, fmt.Errorf("open ONNX Runtime %s: %w: %s", path, ErrLoaded, loaded.path)
	}
	if loaded.path == "" {
		if err := load(path, opt.LogTo); err != nil {
			return nil, fmt.Errorf("open ONNX Runtime %s: %w", path, err)
		}
		loaded.path = path
	}
	live.Add(1)
	return &ortRuntime{name: "onnxruntime " + ortgo.GetVersion() + " cpu"}, nil
}

// load runs under the lock until it succeeds once. The shim creates the environment first so
// that its logger is the one that counts; onnxruntime_go joins it.
func load(path string, to *slog.Logger) error {
	loaded.severity = severityFatal
	if to != nil {
		loaded.severity = severityError
		if to.Enabled(context.Background(), slog.LevelDebug) {
			loaded.severity = severityWarning
		}
		logger.Store(to)
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	if err := message(C.ort_load(cpath, C.int(loaded.severity))); err != nil {
		return err
	}
	ortgo.SetSharedLibraryPath(path)
	if err := ortgo.InitializeEnvironment(); err != nil {
		return err
	}
	if err := ortgo.DisableTelemetry(); err != nil {
		return err
	}
	return shareArena()
}

// shareArena registers one allocator for all sessions. It grows by what is
// asked for, not by powers of two: sessions with changing lengths would keep
// several times the memory otherwise.
func shareArena() error {
	info, err := ortgo.GetMemoryInfo()
	if err != nil {
		return err
	}
	const sameAsRequested, libraryDefault = 1, -1
	cfg, err := ortgo.NewArenaCfg(0, sameAsRequested, libraryDefault, libraryDefault)
	if err != nil {
		return err
	}
	defer cfg.Destroy()
	return ortgo.CreateAndRegisterAllocator(info, cfg)
}

//export ortLog
func ortLog(severity C.int, category, location, text *C.char) {
	to := logger.Load()
	if to == nil {
		return
	}
	level := slog.LevelDebug
	switch {
	case severity >= severityFatal:
		level = slog.LevelError
	case severity == severityError:
		level = slog.LevelWarn
	}
	to.Log(context.Background(), level, "onnxruntime: "+strings.TrimSpace(C.GoString(text)),
		"category", C.GoString(category), "at", C.GoString(location))
}

// message turns the shim's answer into an error and frees it.
func message(m *C.char) error {
	if m == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(m))
	return errors.New(strings.TrimSpace(C.GoString(m)))
}

func (r *ortRuntime) Name() string { return r.name }

// Close ends this handle. The library stays loaded until the process ends.
func (r *ortRuntime) Close() error {
	if !r.closed.Swap(true) {
		live.Add(-1)
	}
	return nil
}

// NewBuffer allocates zeroed memory outside of the Go heap, aligned to 64 bytes.
// Pages of a large buffer cost nothing until they are written.
func (r *ortRuntime) NewBuffer(dtype tensor.DType, shape ...int) (compute.Buffer, error) {
	if r.closed.Load() {
		return nil, compute.ErrClosed
	}
	if _, err := elementType(dtype); err != nil {
		return nil, fmt.Errorf("new buffer: %w", err)
	}
	n, err := elements(shape)
	if err == nil && n > math.MaxInt/8 {
		err = fmt.Errorf("shape %v of %s is too large", shape, dtype)
	}
	if err != nil {
		return nil, fmt.Errorf("new buffer: %w", err)
	}
	mem, err := newMemory(dtype.Bytes(n))
	if err != nil {
		return nil, fmt.Errorf("new buffer %v of %s: %w", shape, dtype, err)
	}
	return newBuffer(mem, mem.bytes, dtype, shape), nil
}

// Borrow makes a buffer over memory outside of the Go heap that the caller
// keeps until the buffer and its views are closed.
func (r *ortRuntime) Borrow(data []byte, dtype tensor.DType, shape ...int) (compute.Buffer, error) {
	if r.closed.Load() {
		return nil, compute.ErrClosed
	}
	if _, err := elementType(dtype); err != nil {
		return nil, fmt.Errorf("borrow memory: %w", err)
	}
	n, err := elements(shape)
	if err == nil && (n > math.MaxInt/8 || dtype.Bytes(n) != len(data)) {
		err = fmt.Errorf("%d bytes for shape %v of %s", len(data), shape, dtype)
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(data))); err == nil && at%uintptr(max(dtype.Size(), 1)) != 0 {
		err = fmt.Errorf("memory for %s is not aligned", dtype)
	}
	if err != nil {
		return nil, fmt.Errorf("borrow memory: %w", err)
	}
	return newBuffer(&memory{bytes: data, borrowed: true}, data, dtype, shape), nil
}

// elements is the product of a shape, checked for sign and overflow.
func elements(shape []int) (int, error) {
	n := 1
	for i, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("dimension %d of shape %v is negative", i, shape)
		}
		if d > 0 && n > math.MaxInt/d {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		n *= d
	}
	return n, nil
}

// The library's element types by ours; its numbers are those of ONNX.
var elementTypes = map[tensor.DType]C.int{
	tensor.F32: 1, tensor.U8: 2, tensor.I8: 3, tensor.I32: 6, tensor.I64: 7,
	tensor.Bool: 9, tensor.F16: 10, tensor.F64: 11, tensor.BF16: 16, tensor.U4: 21, tensor.I4: 22,
}

func elementType(d tensor.DType) (C.int, error) {
	t, ok := elementTypes[d]
	if !ok {
		return 0, fmt.Errorf("element type %s is not supported", d)
	}
	return t, nil
}

func dtypeOf(t C.int) (tensor.DType, error) {
	for d, n := range elementTypes {
		if n == t {
			return d, nil
		}
	}
	return tensor.Invalid, fmt.Errorf("element type %d is not supported", t)
}
