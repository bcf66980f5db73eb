package gradcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"athanor/engine/compute"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Values are tensors by name, in row-major order. Integers and truth values
// are numbers too.
type Values map[string][]float64

// Program is a compiled model whose symbols have sizes. Not for concurrent use.
type Program struct {
	program         compute.Program
	inputs, outputs []port
}

// port is an input or output with memory of its own.
type port struct {
	name   string
	shape  []int
	buffer compute.Buffer
}

// Open compiles a model on rt. Sizes gives a number for each symbol; a symbol
// that is a product, such as "2*B*S", follows from its factors.
func Open(rt compute.Runtime, m *onnx.Model, sizes map[string]int) (p *Program, err error) {
	p = &Program{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.program, err = rt.Compile(m, compute.Options{Threads: 1}); err != nil {
		return p, err
	}
	dtypes := map[string]tensor.DType{}
	for _, port := range slices.Concat(p.program.Inputs(), p.program.Outputs()) {
		dtypes[port.Name] = port.DType
	}
	if p.inputs, err = ports(rt, m.Graph.Inputs, dtypes, sizes); err != nil {
		return p, err
	}
	p.outputs, err = ports(rt, m.Graph.Outputs, dtypes, sizes)
	return p, err
}

func ports(rt compute.Runtime, infos []onnx.ValueInfo, dtypes map[string]tensor.DType, sizes map[string]int) ([]port, error) {
	var list []port
	for _, info := range infos {
		p := port{name: info.Name}
		for _, d := range info.Dims {
			n, err := sizeOf(d, sizes)
			if err != nil {
				return list, fmt.Errorf("%s: %w", info.Name, err)
			}
			p.shape = append(p.shape, n)
		}
		var err error
		if p.buffer, err = rt.NewBuffer(dtypes[info.Name], p.shape...); err != nil {
			return list, fmt.Errorf("%s: %w", info.Name, err)
		}
		list = append(list, p)
	}
	return list, nil
}

func sizeOf(d onnx.Dim, sizes map[string]int) (int, error) {
	if d.Symbol == "" {
		return int(d.Size), nil
	}
	n := 1
	for _, f := range strings.Split(d.Symbol, "*") {
		size, ok := sizes[f]
		if number, err := strconv.Atoi(f); err == nil {
			size, ok = number, true
		}
		if !ok {
			return 0, fmt.Errorf("symbol %s has no size", f)
		}
		n *= size
	}
	return n, nil
}

// Close frees the program and its memory.
func (p *Program) Close() error {
	var errs []error
	for _, port := range slices.Concat(p.inputs, p.outputs) {
		errs = append(errs, port.buffer.Close())
	}
	p.inputs, p.outputs = nil, nil
	if p.program != nil {
		errs = append(errs, p.program.Close())
		p.program = nil
	}
	return errors.Join(errs...)
}

// Run computes all outputs.
func (p *Program) Run(ctx context.Context, in Values) (Values, error) {
	var ins, outs []compute.Buffer
	for _, port := range p.inputs {
		if err := write(port.buffer, in[port.name]); err != nil {
			return nil, fmt.Errorf("input %s: %w", port.name, err)
		}
		ins = append(ins, port.buffer)
	}
	for _, port := range p.outputs {
		outs = append(outs, port.buffer)
	}
	if err := p.program.Run(ctx, ins, outs); err != nil {
		return nil, err
	}
	out := Values{}
	for _, port := range p.outputs {
		v, err := read(port.buffer)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", port.name, err)
		}
		out[port.name] = v
	}
	return out, nil
}

// Fill gives every input values: a copy of those given, else random numbers in
// [-1, 1), which only floating-point inputs may have. All are such that float32
// holds them.
func (p *Program) Fill(random *rand.Rand, given Values) (Values, error) {
	in := Values{}
	for _, port := range p.inputs {
		dtype := port.buffer.DType()
		real := slices.Contains([]tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16}, dtype)
		v, ok := given[port.name]
		switch n := elements(port.buffer); {
		case ok && len(v) != n:
			return nil, fmt.Errorf("input %s has %d values, want %d", port.name, len(v), n)
		case ok:
			v = slices.Clone(v)
		case !real:
			return nil, fmt.Errorf("input %s needs values", port.name)
		default:
			v = make([]float64, n)
			for i := range v {
				v[i] = 2*random.Float64() - 1
			}
		}
		if real {
			for i, x := range v {
				v[i] = float64(float32(x))
			}
		}
		in[port.name] = v
	}
	return in, nil
}

func elements(b compute.Buffer) int {
	n := 1
	for _, d := range b.Shape() {
		n *= d
	}
	return n
}

// write encodes values for a buffer.
func write(b compute.Buffer, values []float64) error {
	raw, dtype := b.Bytes(), b.DType()
	if n := elements(b); n != len(values) || len(raw) != dtype.Bytes(n) {
		return fmt.Errorf("%d values for %s %v of %d bytes", len(values), dtype, b.Shape(), len(raw))
	}
	switch dtype {
	case tensor.F32, tensor.F16, tensor.BF16:
		narrow := make([]float32, len(values))
		for i, v := range values {
			narrow[i] = float32(v)
		}
		return tensor.PutFloat32s(raw, narrow, dtype)
	case tensor.U4, tensor.I4:
		clear(raw)
		for i, v := range values {
			raw[i/2] |= byte(int(v)&15) << (4 * (i % 2))
		}
		return nil
	}
	var word [8]byte
	size := dtype.Size()
	for i, v := range values {
		bits := uint64(int64(v))
		if dtype == tensor.F64 {
			bits = math.Float64bits(v)
		}
		binary.LittleEndian.PutUint64(word[:], bits)
		copy(raw[i*size:(i+1)*size], word[:])
	}
	return nil
}

// read decodes a buffer of floating-point numbers.
func read(b compute.Buffer) ([]float64, error) {
	raw, values := b.Bytes(), make([]float64, elements(b))
	if b.DType() == tensor.F64 && len(raw) == 8*len(values) {
		for i := range values {
			values[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		return values, nil
	}
	narrow := make([]float32, len(values))
	err := tensor.Float32s(narrow, raw, b.DType())
	for i, v := range narrow {
		values[i] = float64(v)
	}
	return values, err
}
