//go:build cgo

package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"athanor/engine/compute"
)

// program implements compute.Program on one session.
type program struct {
	inputs, outputs []compute.Port

	mu      sync.Mutex // held by Run and Close; guards the fields below
	session *C.OrtSession
	options *C.OrtRunOptions
	names   []*C.char // C memory: of the inputs, then of the outputs
	in, out []*C.OrtValue
	want    []*C.char // names of the outputs that this run wants
}

// newProgram takes over the session.
func newProgram(session *C.OrtSession) (*program, error) {
	p := &program{session: session}
	live.Add(1)
	err := message(C.ort_run_options_new(&p.options))
	if err == nil {
		err = p.describe()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	p.in = make([]*C.OrtValue, len(p.inputs))
	p.out = make([]*C.OrtValue, 0, len(p.outputs))
	p.want = make([]*C.char, 0, len(p.outputs))
	return p, nil
}

// describe reads names, types and shapes of the inputs and outputs.
func (p *program) describe() error {
	var nin, nout C.size_t
	if err := message(C.ort_session_counts(p.session, &nin, &nout)); err != nil {
		return err
	}
	for i := range nin {
		port, err := p.port(0, i)
		if err != nil {
			return fmt.Errorf("input %d %q: %w", i, port.Name, err)
		}
		p.inputs = append(p.inputs, port)
	}
	for i := range nout {
		port, err := p.port(1, i)
		if err != nil {
			return fmt.Errorf("output %d %q: %w", i, port.Name, err)
		}
		p.outputs = append(p.outputs, port)
	}
	return nil
}

func (p *program) port(output C.int, i C.size_t) (compute.Port, error) {
	var c C.ort_port
	err := message(C.ort_session_port(p.session, output, i, &c))
	port := compute.Port{}
	if c.name != nil {
		p.names = append(p.names, c.name)
		port.Name = C.GoString(c.name)
	}
	if err != nil {
		return port, err
	}
	port.DType, err = dtypeOf(c._type)
	port.Shape = make([]int, c.rank)
	for j := range port.Shape {
		port.Shape[j] = int(c.dims[j])
	}
	return port, err
}

func (p *program) Inputs() []compute.Port  { return slices.Clone(p.inputs) }
func (p *program) Outputs() []compute.Port { return slices.Clone(p.outputs) }

// Run computes into the given buffers without copies. Calls on one program wait
// for each other.
func (p *program) Run(ctx context.Context, in, out []compute.Buffer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return compute.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.bind(in, out); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer p.unbind()
	stop := p.watch(ctx)
	err := message(C.ort_run(p.session, p.options,
		first(p.names), first(p.in), C.size_t(len(p.in)),
		first(p.want), first(p.out), C.size_t(len(p.out))))
	if err := errors.Join(err, stop()); err != nil {
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// first is the address of a slice's first element, nil for an empty slice.
func first[T any](s []T) *T { return unsafe.SliceData(s) }

// bind collects the library's tensors of the buffers.
func (p *program) bind(in, out []compute.Buffer) error {
	if len(in) != len(p.inputs) || len(out) != len(p.outputs) {
		return fmt.Errorf("%d inputs and %d outputs given, the model has %d and %d",
			len(in), len(out), len(p.inputs), len(p.outputs))
	}
	for i, b := range in {
		v, err := valueFor(&p.inputs[i], b)
		if err != nil {
			return fmt.Errorf("input %q: %w", p.inputs[i].Name, err)
		}
		p.in[i] = v
	}
	p.out, p.want = p.out[:0], p.want[:0]
	for i, b := range out {
		if b == nil {
			continue
		}
		v, err := valueFor(&p.outputs[i], b)
		if err != nil {
			return fmt.Errorf("output %q: %w", p.outputs[i].Name, err)
		}
		p.out = append(p.out, v)
		p.want = append(p.want, p.names[len(p.inputs)+i])
	}
	if len(p.out) == 0 {
		return errors.New("no output is wanted")
	}
	return nil
}

// unbind forgets the tensors; the buffers own them.
func (p *program) unbind() {
	clear(p.in)
	clear(p.out)
}

// valueFor checks a buffer against a port. The library checks the whole again,
// but it says less, and it would trust the type of an output.
func valueFor(port *compute.Port, b compute.Buffer) (*C.OrtValue, error) {
	o, err := own(b)
	if err != nil {
		return nil, err
	}
	if o.dtype != port.DType {
		return nil, fmt.Errorf("the buffer holds %s, the model has %s", o.dtype, port.DType)
	}
	if !fits(port.Shape, o.shape) {
		return nil, fmt.Errorf("the buffer has shape %v, the model has %v", o.shape, port.Shape)
	}
	return o.ortValue()
}

// fits reports whether shape is one of those that a port declares. A port of
// rank 0 is not checked: the library gives it to scalars and to unknown ranks.
func fits(declared, shape []int) bool {
	if len(declared) == 0 {
		return true
	}
	if len(declared) != len(shape) {
		return false
	}
	for i, d := range declared {
		if d >= 0 && d != shape[i] {
			return false
		}
	}
	return true
}

// watch terminates the run when ctx ends. The returned function ends the watch
// and makes the program usable again.
func (p *program) watch(ctx context.Context) func() error {
	if ctx.Done() == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	cancel := context.AfterFunc(ctx, func() { done <- message(C.ort_terminate(p.options, 1)) })
	return func() error {
		if cancel() {
			return nil
		}
		return errors.Join(<-done, message(C.ort_terminate(p.options, 0)))
	}
}

// Close waits for a running Run. It is idempotent.
func (p *program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return nil
	}
	C.ort_session_free(p.session)
	p.session = nil
	if p.options != nil {
		C.ort_run_options_free(p.options)
		p.options = nil
	}
	for _, n := range p.names {
		C.free(unsafe.Pointer(n))
	}
	p.names = nil
	live.Add(-1)
	return nil
}
