package refexec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"athanor/engine/compute"
	"athanor/engine/onnx"
)

// program implements compute.Program.
type program struct {
	inputs, outputs []compute.Port
	steps           []step

	mu        sync.Mutex // held by Run and Close; guards the field below
	constants map[string]*array
}

// step is a node with its kernel.
type step struct {
	node   *onnx.Node
	attrs  map[string]*onnx.Attribute
	kernel kernel
}

// kernel computes one operator. It does not change its inputs.
type kernel func(c *call) ([]*array, error)

// call is one use of a kernel.
type call struct {
	in    []*array // nil where omitted
	outs  int      // how many outputs the node names
	attrs map[string]*onnx.Attribute
}

func (p *program) Inputs() []compute.Port  { return slices.Clone(p.inputs) }
func (p *program) Outputs() []compute.Port { return slices.Clone(p.outputs) }

// Run interprets the graph node by node; ctx is looked at between nodes.
func (p *program) Run(ctx context.Context, in, out []compute.Buffer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.constants == nil {
		return compute.ErrClosed
	}
	values, err := p.read(in, out)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	for i := range p.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.steps[i].run(values); err != nil {
			n := p.steps[i].node
			return fmt.Errorf("run: node %d %q %s: %w", i, n.Name, n.OpType, err)
		}
	}
	for i, b := range out {
		if b == nil {
			continue
		}
		v := values[p.outputs[i].Name]
		if !slices.Equal(v.shape, b.Shape()) || dtypes[v.typ] != b.DType() {
			return fmt.Errorf("run: output %q is %v, its buffer is %v", p.outputs[i].Name, v.shape, b.Shape())
		}
		if err := v.putBytes(b.Bytes()); err != nil {
			return fmt.Errorf("run: output %q: %w", p.outputs[i].Name, err)
		}
	}
	return nil
}

// read checks the buffers and copies the inputs, so that outputs may share
// their memory.
func (p *program) read(in, out []compute.Buffer) (map[string]*array, error) {
	if len(in) != len(p.inputs) || len(out) != len(p.outputs) {
		return nil, fmt.Errorf("%d inputs and %d outputs given, the model has %d and %d", len(in), len(out), len(p.inputs), len(p.outputs))
	}
	values := maps.Clone(p.constants)
	for i, b := range in {
		if err := check(&p.inputs[i], b); err != nil {
			return nil, fmt.Errorf("input %q: %w", p.inputs[i].Name, err)
		}
		a, err := fromBytes(dataType(b), b.Shape(), b.Bytes())
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", p.inputs[i].Name, err)
		}
		values[p.inputs[i].Name] = a
	}
	wanted := false
	for i, b := range out {
		if b == nil {
			continue
		}
		wanted = true
		if err := check(&p.outputs[i], b); err != nil {
			return nil, fmt.Errorf("output %q: %w", p.outputs[i].Name, err)
		}
	}
	if !wanted {
		return nil, errors.New("no output is wanted")
	}
	return values, nil
}

func check(port *compute.Port, b compute.Buffer) error {
	own, ok := b.(*buffer)
	switch {
	case !ok:
		return errors.New("the buffer belongs to another runtime")
	case own.data == nil:
		return compute.ErrClosed
	case own.dtype != port.DType:
		return fmt.Errorf("the buffer holds %s, the model has %s", own.dtype, port.DType)
	case len(own.shape) != len(port.Shape):
		return fmt.Errorf("the buffer has shape %v, the model has %v", own.shape, port.Shape)
	}
	for i, d := range port.Shape {
		if d >= 0 && d != own.shape[i] {
			return fmt.Errorf("the buffer has shape %v, the model has %v", own.shape, port.Shape)
		}
	}
	return nil
}

// dataType is the model's type for a buffer's.
func dataType(b compute.Buffer) onnx.DataType {
	for t, d := range dtypes {
		if d == b.DType() {
			return t
		}
	}
	return 0
}

// run computes one node. Kernels check what they can name; what is left, such
// as an index that leaves its array, must not take the process down.
func (s *step) run(values map[string]*array) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("inputs do not fit the operator: %v", r)
		}
	}()
	c := &call{attrs: s.attrs, outs: len(s.node.Outputs)}
	for _, name := range s.node.Inputs {
		c.in = append(c.in, values[name]) // nil for the empty name
	}
	results, err := s.kernel(c)
	if err != nil {
		return err
	}
	for i, name := range s.node.Outputs {
		if name == "" {
			continue
		}
		if i >= len(results) || results[i] == nil {
			return fmt.Errorf("output %d is not supported", i)
		}
		results[i].round()
		values[name] = results[i]
	}
	return nil
}

func (p *program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.constants = nil
	return nil
}

// arg is input i, nil when it is omitted.
func (c *call) arg(i int) *array {
	if i < len(c.in) {
		return c.in[i]
	}
	return nil
}

// need fails unless the first n inputs are given.
func (c *call) need(n int) error {
	for i := range n {
		if c.arg(i) == nil {
			return fmt.Errorf("input %d is missing", i)
		}
	}
	return nil
}

// needFloats fails unless the first n inputs are given and floating-point.
func (c *call) needFloats(n int) error {
	if err := c.need(n); err != nil {
		return err
	}
	for i, a := range c.in[:n] {
		if !isFloat(a.typ) {
			return fmt.Errorf("input %d has data type %d, want floating-point", i, a.typ)
		}
	}
	return nil
}

func (c *call) int(name string, otherwise int64) int64 {
	if a := c.attrs[name]; a != nil {
		return a.I
	}
	return otherwise
}

func (c *call) float(name string, otherwise float32) float32 {
	if a := c.attrs[name]; a != nil {
		return a.F
	}
	return otherwise
}

// ints is input i when it is given, else the attribute of that name, which was
// its place in older operator sets.
func (c *call) ints(i int, name string) []int64 {
	if a := c.arg(i); a != nil {
		return a.i
	}
	if a := c.attrs[name]; a != nil {
		return a.Ints
	}
	return nil
}

// refuse fails when an attribute asks for something that no kernel does.
func (c *call) refuse(name string, harmless int64) error {
	if v := c.int(name, harmless); v != harmless {
		return fmt.Errorf("attribute %s = %d is not supported", name, v)
	}
	return nil
}

// one wraps the result of kernels with a single output.
func one(a *array, err error) ([]*array, error) {
	if err != nil {
		return nil, err
	}
	return []*array{a}, nil
}
