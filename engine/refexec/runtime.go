package refexec

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"athanor/engine/compute"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// ErrUnknownOperator is wrapped by Compile for operators without a kernel.
var ErrUnknownOperator = errors.New("refexec: unknown operator")

// Runtime implements compute.Runtime. Options other than Dir are ignored.
type Runtime struct{ closed atomic.Bool }

// New returns a runtime; it needs nothing.
func New() *Runtime { return &Runtime{} }

// Name is "refexec".
func (r *Runtime) Name() string { return "refexec" }

// Close makes further Compile and NewBuffer calls fail.
func (r *Runtime) Close() error {
	r.closed.Store(true)
	return nil
}

// NewBuffer allocates zeroed Go memory.
func (r *Runtime) NewBuffer(dtype tensor.DType, shape ...int) (compute.Buffer, error) {
	if r.closed.Load() {
		return nil, compute.ErrClosed
	}
	n, ok := elements(shape)
	if dtype.Bytes(1) == 0 || !ok || n > math.MaxInt/64 {
		return nil, fmt.Errorf("new buffer: shape %v of %s", shape, dtype)
	}
	return &buffer{dtype: dtype, shape: slices.Clone(shape), data: make([]byte, dtype.Bytes(n))}, nil
}

// elements is the product of a shape, false when it is negative or overflows.
func elements(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 || (d > 0 && n > math.MaxInt/8/d) {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// buffer implements compute.Buffer.
type buffer struct {
	dtype tensor.DType
	shape []int
	data  []byte // nil once closed
}

func (b *buffer) DType() tensor.DType { return b.dtype }
func (b *buffer) Shape() []int        { return slices.Clone(b.shape) }
func (b *buffer) Bytes() []byte       { return b.data }

func (b *buffer) View(offset int, shape ...int) (compute.Buffer, error) {
	if b.data == nil {
		return nil, compute.ErrClosed
	}
	size := b.dtype.Size()
	if size == 0 {
		return nil, fmt.Errorf("view: elements of %s are smaller than a byte", b.dtype)
	}
	n, ok := elements(shape)
	if have := len(b.data) / size; !ok || offset < 0 || offset > have || n > have-offset {
		return nil, fmt.Errorf("view: shape %v at element %d of a buffer that has %d", shape, offset, have)
	}
	return &buffer{dtype: b.dtype, shape: slices.Clone(shape), data: b.data[offset*size:][:n*size]}, nil
}

func (b *buffer) Close() error {
	b.data = nil
	return nil
}

// Compile checks that every operator is known and every name is defined before
// it is used, and reads the initializers.
func (r *Runtime) Compile(m *onnx.Model, opt compute.Options) (compute.Program, error) {
	if r.closed.Load() {
		return nil, compute.ErrClosed
	}
	p, err := compile(m.Graph, opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("compile model: %w", err)
	}
	return p, nil
}

func compile(g *onnx.Graph, dir string) (*program, error) {
	p := &program{constants: map[string]*array{}}
	known := map[string]bool{"": true}
	for _, t := range g.Initializers {
		a, err := load(t, dir)
		if err != nil {
			return nil, fmt.Errorf("initializer %q: %w", t.Name, err)
		}
		p.constants[t.Name] = a
		known[t.Name] = true
	}
	var err error
	if p.inputs, err = ports(g.Inputs, known); err != nil {
		return nil, err
	}
	for i, n := range g.Nodes {
		k, err := newStep(n, known)
		if err != nil {
			return nil, fmt.Errorf("node %d %q: %w", i, n.Name, err)
		}
		p.steps = append(p.steps, k)
	}
	for _, o := range g.Outputs {
		if !known[o.Name] {
			return nil, fmt.Errorf("output %q is not computed", o.Name)
		}
	}
	p.outputs, err = ports(g.Outputs, known)
	return p, err
}

// newStep finds the kernel of a node and marks what it computes as known.
func newStep(n *onnx.Node, known map[string]bool) (step, error) {
	name := n.OpType
	if n.Domain != onnx.DomainONNX && n.Domain != "ai.onnx" {
		name = n.Domain + "::" + n.OpType
	}
	kernel, ok := kernels[name]
	if !ok {
		return step{}, fmt.Errorf("%w %s", ErrUnknownOperator, name)
	}
	for _, in := range n.Inputs {
		if !known[in] {
			return step{}, fmt.Errorf("input %q is not defined before it is used", in)
		}
	}
	for _, out := range n.Outputs {
		known[out] = true
	}
	attrs := map[string]*onnx.Attribute{}
	for i := range n.Attributes {
		attrs[n.Attributes[i].Name] = &n.Attributes[i]
	}
	return step{node: n, attrs: attrs, kernel: kernel}, nil
}

func ports(values []onnx.ValueInfo, known map[string]bool) ([]compute.Port, error) {
	var list []compute.Port
	for _, v := range values {
		d, ok := dtypes[v.Type]
		if !ok {
			return nil, fmt.Errorf("%q has data type %d, which is not supported", v.Name, v.Type)
		}
		known[v.Name] = true
		p := compute.Port{Name: v.Name, DType: d, Shape: []int{}}
		for _, dim := range v.Dims {
			n := int(dim.Size)
			if dim.Symbol != "" {
				n = -1
			}
			p.Shape = append(p.Shape, n)
		}
		list = append(list, p)
	}
	return list, nil
}

// load reads an initializer, from its file when it has one.
func load(t *onnx.Tensor, dir string) (*array, error) {
	raw := t.Raw
	if t.External != nil {
		var err error
		if raw, err = readExternal(t, dir); err != nil {
			return nil, err
		}
	}
	shape := make([]int, len(t.Dims))
	for i, d := range t.Dims {
		shape[i] = int(d)
	}
	return fromBytes(t.Type, shape, raw)
}

func readExternal(t *onnx.Tensor, dir string) ([]byte, error) {
	e := t.External
	if dir == "" || !filepath.IsLocal(e.Location) {
		return nil, fmt.Errorf("file %q in folder %q cannot be used", e.Location, dir)
	}
	size, err := t.ByteSize()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, e.Location))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if e.Offset < 0 || e.Offset > info.Size() || size > info.Size()-e.Offset || (e.Length != 0 && e.Length != size) {
		return nil, fmt.Errorf("%d bytes at %d of %s, which has %d", size, e.Offset, e.Location, info.Size())
	}
	raw := make([]byte, size)
	_, err = f.ReadAt(raw, e.Offset)
	return raw, err
}
