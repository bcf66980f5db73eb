package optim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"athanor/engine/compute"
	"athanor/engine/graph"
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Constants of AdamW, as in the paper of Adam (Kingma and Ba 2014,
// arXiv:1412.6980).
const (
	Beta1   = 0.9
	Beta2   = 0.999
	Epsilon = 1e-8
)

// pieceElements bounds the elements of one run of the program, whose
// intermediate results are of that size.
const pieceElements = 1 << 20

// Param is a trainable tensor: float32 buffers of one size, in memory that the
// host can address. They belong to the caller, who closes them after AdamW.
type Param struct {
	Name        string
	Value, Grad compute.Buffer
	Decay       bool // weight decay applies to it
}

// Options of AdamW.
type Options struct {
	WeightDecay float64
	Threads     int // of the program, 0 = physical cores
}

// State is what AdamW knows about one tensor, for saving and restoring. The
// slices are the memory itself, little-endian float32.
type State struct {
	Name                             string
	Value, FirstMoment, SecondMoment []byte
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter 2017,
// arXiv:1711.05101). It belongs to one goroutine at a time.
type AdamW struct {
	options Options
	program compute.Program
	params  []Param
	moments [][2]compute.Buffer
	pieces  []piece
	keep    [2]compute.Buffer // what decay leaves of a value: of tensors without and with decay
	scalars [3]compute.Buffer // factor of the gradient, rate, 1/sqrt of the second correction
}

// piece is a window on a tensor: value, gradient, first and second moment.
type piece struct {
	windows [4]compute.Buffer
	decay   int // index in keep
}

// New prepares the program and zero moments for params.
func New(rt compute.Runtime, params []Param, options Options) (*AdamW, error) {
	o := &AdamW{options: options, params: params}
	if err := o.open(rt); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the optimiser: %w", err), o.Close())
	}
	return o, nil
}

func (o *AdamW) open(rt compute.Runtime) error {
	model, err := program()
	if err != nil {
		return err
	}
	if o.program, err = rt.Compile(model, compute.Options{Threads: o.options.Threads}); err != nil {
		return err
	}
	for _, at := range []*compute.Buffer{&o.keep[0], &o.keep[1], &o.scalars[0], &o.scalars[1], &o.scalars[2]} {
		if *at, err = rt.NewBuffer(tensor.F32, 1); err != nil {
			return err
		}
	}
	for _, p := range o.params {
		if err := o.add(rt, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// add makes the moments and the pieces of one tensor.
func (o *AdamW) add(rt compute.Runtime, p Param) error {
	if p.Value.DType() != tensor.F32 || p.Grad.DType() != tensor.F32 || len(p.Value.Bytes()) == 0 || len(p.Value.Bytes()) != len(p.Grad.Bytes()) {
		return errors.New("value and gradient must be float32 of one size in memory of the host")
	}
	n := len(p.Value.Bytes()) / 4
	o.moments = append(o.moments, [2]compute.Buffer{})
	m := &o.moments[len(o.moments)-1]
	for i := range m {
		var err error
		if m[i], err = rt.NewBuffer(tensor.F32, n); err != nil {
			return err
		}
	}
	for at := 0; at < n; at += pieceElements {
		var c piece
		if p.Decay {
			c.decay = 1
		}
		for i, whole := range []compute.Buffer{p.Value, p.Grad, m[0], m[1]} {
			w, err := whole.View(at, min(pieceElements, n-at))
			if err != nil {
				return errors.Join(err, c.close())
			}
			c.windows[i] = w
		}
		o.pieces = append(o.pieces, c)
	}
	return nil
}

// program computes one update of N elements.
func program() (*onnx.Model, error) {
	return graph.Build(func(g *graph.Graph) {
		n, one := graph.Symbol("N"), graph.Fixed(1)
		value := g.Input("value", tensor.F32, n)
		gradient := g.Input("gradient", tensor.F32, n)
		first := g.Input("first", tensor.F32, n)
		second := g.Input("second", tensor.F32, n)
		factor := g.Input("factor", tensor.F32, one)
		keep := g.Input("keep", tensor.F32, one)
		rate := g.Input("rate", tensor.F32, one)
		root := g.Input("root", tensor.F32, one)
		c := func(v float64) *graph.Value { return g.Scalar(v, tensor.F32) }

		scaled := g.Mul(gradient, factor)
		m := g.Add(g.Mul(first, c(Beta1)), g.Mul(scaled, c(1-Beta1)))
		v := g.Add(g.Mul(second, c(Beta2)), g.Mul(g.Mul(scaled, scaled), c(1-Beta2)))
		deviation := g.Add(g.Mul(g.Sqrt(v), root), c(Epsilon))
		next := g.Sub(g.Mul(value, keep), g.Div(g.Mul(m, rate), deviation))
		g.Output("next_value", next)
		g.Output("next_first", m)
		g.Output("next_second", v)
	})
}

// Step makes update number t, from 1, at a learning rate, with the gradients
// times factor. An error leaves some tensors updated and some not.
func (o *AdamW) Step(ctx context.Context, t int, rate, factor float64) error {
	put(o.keep[0], 1)
	put(o.keep[1], 1-rate*o.options.WeightDecay)
	put(o.scalars[0], factor)
	put(o.scalars[1], rate/(1-math.Pow(Beta1, float64(t))))
	put(o.scalars[2], 1/math.Sqrt(1-math.Pow(Beta2, float64(t))))
	for _, p := range o.pieces {
		w := p.windows
		in := []compute.Buffer{w[0], w[1], w[2], w[3], o.scalars[0], o.keep[p.decay], o.scalars[1], o.scalars[2]}
		if err := o.program.Run(ctx, in, []compute.Buffer{w[0], w[2], w[3]}); err != nil {
			return fmt.Errorf("update the weights: %w", err)
		}
	}
	return nil
}

func put(b compute.Buffer, v float64) {
	binary.LittleEndian.PutUint32(b.Bytes(), math.Float32bits(float32(v)))
}

// States lists the tensors in the order of New.
func (o *AdamW) States() []State {
	list := make([]State, len(o.params))
	for i, p := range o.params {
		list[i] = State{p.Name, p.Value.Bytes(), o.moments[i][0].Bytes(), o.moments[i][1].Bytes()}
	}
	return list
}

// Close frees the program and the moments, not the params.
func (o *AdamW) Close() error {
	var errs []error
	for _, p := range o.pieces {
		errs = append(errs, p.close())
	}
	for _, m := range o.moments {
		errs = append(errs, closeAll(m[:]))
	}
	errs = append(errs, closeAll(o.keep[:]), closeAll(o.scalars[:]))
	if o.program != nil {
		errs = append(errs, o.program.Close())
	}
	o.pieces, o.moments, o.program = nil, nil, nil
	return errors.Join(errs...)
}

func (p *piece) close() error { return closeAll(p.windows[:]) }

func closeAll(list []compute.Buffer) error {
	var errs []error
	for _, b := range list {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}
