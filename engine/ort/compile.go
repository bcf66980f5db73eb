//go:build cgo

package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"unsafe"

	"athanor/engine/compute"
	"athanor/engine/onnx"
)

// Compile builds a session. Weights in files are mapped from opt.Dir; with
// opt.Cache the optimised model and its packed weights are kept on disk and
// mapped as well.
func (r *ortRuntime) Compile(m *onnx.Model, opt compute.Options) (compute.Program, error) {
	if r.closed.Load() {
		return nil, compute.ErrClosed
	}
	p, err := r.compile(m, opt)
	if err != nil {
		return nil, fmt.Errorf("compile model: %w", err)
	}
	return p, nil
}

func (r *ortRuntime) compile(m *onnx.Model, opt compute.Options) (*program, error) {
	external, err := checkExternal(m, opt.Dir)
	if err != nil {
		return nil, err
	}
	model, err := onnx.Encode(m)
	if err != nil {
		return nil, err
	}
	cfg := sessionConfig{model: model, threads: opt.Threads}
	if cfg.threads <= 0 {
		cfg.threads = physicalCores()
	}
	if external {
		if cfg.dir, err = filepath.Abs(opt.Dir); err != nil {
			return nil, err
		}
	}
	if opt.Cache == "" {
		return cfg.open()
	}
	return openCached(cfg, opt.Cache, opt.Key)
}

// checkExternal says whether the model has weights in files, and that those
// files are where they should be and large enough.
func checkExternal(m *onnx.Model, dir string) (bool, error) {
	sizes := map[string]int64{}
	for _, t := range m.Graph.Initializers {
		e := t.External
		if e == nil {
			continue
		}
		if dir == "" {
			return false, fmt.Errorf("initializer %q is in file %q, but no folder is given", t.Name, e.Location)
		}
		if !filepath.IsLocal(e.Location) {
			return false, fmt.Errorf("initializer %q: location %q leaves the folder", t.Name, e.Location)
		}
		size, seen := sizes[e.Location]
		if !seen {
			info, err := os.Stat(filepath.Join(dir, e.Location))
			if err != nil {
				return false, fmt.Errorf("initializer %q: %w", t.Name, err)
			}
			size = info.Size()
			sizes[e.Location] = size
		}
		want, err := t.ByteSize()
		if err != nil {
			return false, err
		}
		if e.Length != 0 && e.Length != want {
			return false, fmt.Errorf("initializer %q: %d bytes are given, its shape %v needs %d", t.Name, e.Length, t.Dims, want)
		}
		if e.Offset < 0 || e.Offset > size || want > size-e.Offset {
			return false, fmt.Errorf("initializer %q: bytes %d to %d+%d of %s, which has %d", t.Name, e.Offset, e.Offset, want, e.Location, size)
		}
	}
	return len(sizes) > 0, nil
}

// sessionConfig is what a session is made from.
type sessionConfig struct {
	model   []byte // encoded; or
	path    string // a file that has been optimised before
	dir     string // of external weights, for model only
	save    string // where to write the optimised model, "" for nowhere
	threads int
}

// alignedFrom is the size of the smallest weight that goes to the data file;
// smaller ones stay inside of the optimised model. The library starts weights
// and packed weights on a page only when they are larger than 1 MiB, and packs
// the others end to end. Its 4 and 8 bit kernels, however, find the parts of a
// packed weight by rounding its address up to 64: one that lies at another
// remainder than it was packed at is misread, which gives NaN.
const alignedFrom = 1<<20 + 1

func (c *sessionConfig) entries() [][2]string {
	list := [][2]string{{"session.use_env_allocators", "1"}}
	if c.dir != "" {
		list = append(list, [2]string{"session.model_external_initializers_file_folder_path", c.dir})
	}
	if c.save != "" {
		list = append(list,
			[2]string{"session.optimized_model_external_initializers_file_name", filepath.Base(c.save) + dataSuffix},
			[2]string{"session.optimized_model_external_initializers_min_size_in_bytes", strconv.Itoa(alignedFrom)},
			[2]string{"session.save_external_prepacked_constant_initializers", "1"})
	}
	return list
}

func (c *sessionConfig) open() (*program, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	var owned []*C.char
	defer func() {
		for _, s := range owned {
			C.free(unsafe.Pointer(s))
		}
	}()
	cstring := func(s string) *C.char {
		p := C.CString(s)
		owned = append(owned, p)
		return p
	}

	cfg := C.ort_session_config{threads: C.int(c.threads), severity: C.int(loaded.severity), optimise: 1}
	if c.path != "" {
		cfg.path, cfg.optimise = cstring(c.path), 0
	} else {
		cfg.model, cfg.size = unsafe.Pointer(&c.model[0]), C.size_t(len(c.model))
		pin.Pin(&c.model[0])
	}
	if c.save != "" {
		cfg.save = cstring(c.save)
	}
	var keys, values []*C.char
	for _, e := range c.entries() {
		keys = append(keys, cstring(e[0]))
		values = append(values, cstring(e[1]))
	}
	pin.Pin(&keys[0])
	pin.Pin(&values[0])
	cfg.keys, cfg.values, cfg.entries = &keys[0], &values[0], C.int(len(keys))

	var session *C.OrtSession
	if err := message(C.ort_session_new(&cfg, &session)); err != nil {
		return nil, err
	}
	return newProgram(session)
}
