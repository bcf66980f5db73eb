package refexec

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"athanor/engine/onnx"
)

// unaryOps are the operators that map one float to one float.
var unaryOps = map[string]func(float64) float64{
	"Sigmoid":    sigmoid,
	"Sqrt":       math.Sqrt,
	"Neg":        func(x float64) float64 { return -x },
	"Abs":        math.Abs,
	"Tanh":       math.Tanh,
	"Erf":        math.Erf,
	"Exp":        math.Exp,
	"Log":        math.Log,
	"Cos":        math.Cos,
	"Sin":        math.Sin,
	"Reciprocal": func(x float64) float64 { return 1 / x },
	"Relu":       func(x float64) float64 { return max(x, 0) },
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func unary(op func(float64) float64) kernel {
	return func(c *call) ([]*array, error) {
		if err := c.need(1); err != nil {
			return nil, err
		}
		x := c.in[0]
		y, err := newArray(x.typ, x.shape...)
		if err != nil {
			return nil, err
		}
		for i, v := range x.f {
			y.f[i] = op(v)
		}
		for i, v := range x.i {
			y.i[i] = int64(op(float64(v)))
		}
		return []*array{y}, nil
	}
}

// quickGelu is x * sigmoid(alpha * x).
func quickGelu(c *call) ([]*array, error) {
	alpha := float64(c.float("alpha", 1.702))
	return unary(func(x float64) float64 { return x * sigmoid(alpha*x) })(c)
}

// binaryOp is an arithmetic operator on floats and on integers.
type binaryOp struct {
	f func(a, b float64) float64
	i func(a, b int64) int64
}

var binaryOps = map[string]binaryOp{
	"Add": {func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }},
	"Sub": {func(a, b float64) float64 { return a - b }, func(a, b int64) int64 { return a - b }},
	"Mul": {func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }},
	"Div": {func(a, b float64) float64 { return a / b }, func(a, b int64) int64 { return a / b }},
	"Max": {math.Max, func(a, b int64) int64 { return max(a, b) }},
	"Min": {math.Min, func(a, b int64) int64 { return min(a, b) }},
	"Pow": {math.Pow, func(a, b int64) int64 { return int64(math.Pow(float64(a), float64(b))) }},
	"And": {nil, func(a, b int64) int64 { return a & b }},
	"Or":  {nil, func(a, b int64) int64 { return a | b }},
}

// arithmetic folds the inputs (Max and Min take any number) with broadcasting.
func arithmetic(op binaryOp) kernel {
	return func(c *call) ([]*array, error) {
		if err := c.need(max(1, len(c.in))); err != nil {
			return nil, err
		}
		acc := c.in[0]
		for _, b := range c.in[1:] {
			var err error
			if acc, err = combine(op, acc, b); err != nil {
				return nil, err
			}
		}
		return []*array{acc}, nil
	}
}

func combine(op binaryOp, a, b *array) (*array, error) {
	shape, err := broadcast(a.shape, b.shape)
	if err != nil {
		return nil, err
	}
	y, err := newArray(a.typ, shape...)
	if err != nil {
		return nil, err
	}
	float := isFloat(a.typ)
	if float && op.f == nil {
		return nil, errors.New("want booleans")
	}
	if !float && isFloat(b.typ) {
		return nil, fmt.Errorf("data types %d and %d do not mix", a.typ, b.typ)
	}
	walk(shape, func(at int, o []int) {
		if float {
			y.f[at] = op.f(a.f[o[0]], b.at(o[1]))
		} else {
			y.i[at] = op.i(a.i[o[0]], b.i[o[1]])
		}
	}, spread(a.shape, shape), spread(b.shape, shape))
	return y, nil
}

var compareOps = map[string]func(order int) bool{
	"Equal":          func(o int) bool { return o == 0 },
	"Less":           func(o int) bool { return o < 0 },
	"LessOrEqual":    func(o int) bool { return o <= 0 },
	"Greater":        func(o int) bool { return o > 0 },
	"GreaterOrEqual": func(o int) bool { return o >= 0 },
}

func compare(op func(order int) bool) kernel {
	return func(c *call) ([]*array, error) {
		if err := c.need(2); err != nil {
			return nil, err
		}
		a, b := c.in[0], c.in[1]
		shape, err := broadcast(a.shape, b.shape)
		if err != nil {
			return nil, err
		}
		y, err := newArray(onnx.BoolType, shape...)
		if err != nil {
			return nil, err
		}
		if isFloat(a.typ) != isFloat(b.typ) {
			return nil, fmt.Errorf("data types %d and %d do not compare", a.typ, b.typ)
		}
		walk(shape, func(at int, o []int) {
			if op(order(a, o[0], b, o[1])) {
				y.i[at] = 1
			}
		}, spread(a.shape, shape), spread(b.shape, shape))
		return []*array{y}, nil
	}
}

// order compares two elements of the same kind.
func order(a *array, i int, b *array, j int) int {
	if isFloat(a.typ) {
		return sign(a.f[i] - b.f[j])
	}
	switch x, y := a.i[i], b.i[j]; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func sign(x float64) int {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}

func where(c *call) ([]*array, error) {
	if err := c.need(3); err != nil {
		return nil, err
	}
	cond, x, y := c.in[0], c.in[1], c.in[2]
	shape, err := broadcast(cond.shape, x.shape, y.shape)
	if err != nil {
		return nil, err
	}
	if cond.typ != onnx.BoolType || x.typ != y.typ {
		return nil, fmt.Errorf("data types %d, %d, %d", cond.typ, x.typ, y.typ)
	}
	z, err := newArray(x.typ, shape...)
	if err != nil {
		return nil, err
	}
	walk(shape, func(at int, o []int) {
		if cond.i[o[0]] != 0 {
			z.set(at, x, o[1])
		} else {
			z.set(at, y, o[2])
		}
	}, spread(cond.shape, shape), spread(x.shape, shape), spread(y.shape, shape))
	return []*array{z}, nil
}

// cast converts elements; floats lose their fraction on the way to integers.
func cast(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	x, to := c.in[0], onnx.DataType(c.int("to", 0))
	if _, ok := dtypes[to]; !ok {
		return nil, fmt.Errorf("data type %d is not supported", to)
	}
	y, err := newArray(to, x.shape...)
	if err != nil {
		return nil, err
	}
	for i := range x.size() {
		switch {
		case to == onnx.BoolType:
			if x.at(i) != 0 {
				y.i[i] = 1
			}
		case isFloat(to):
			y.f[i] = x.at(i)
		case isFloat(x.typ):
			y.i[i] = wrap(to, int64(x.f[i]))
		default:
			y.i[i] = wrap(to, x.i[i])
		}
	}
	return []*array{y}, nil
}

// wrap is v as it is after being stored in an integer type.
func wrap(to onnx.DataType, v int64) int64 {
	switch to {
	case onnx.Int4:
		return int64(int8(v<<4) >> 4)
	case onnx.Uint4:
		return v & 15
	case onnx.Int8:
		return int64(int8(v))
	case onnx.Uint8:
		return int64(uint8(v))
	case onnx.Int32:
		return int64(int32(v))
	}
	return v
}

// rangeOf is start, start+delta, ... before limit.
func rangeOf(c *call) ([]*array, error) {
	if err := c.need(3); err != nil {
		return nil, err
	}
	start, limit, delta := c.in[0], c.in[1], c.in[2]
	if slices.ContainsFunc(c.in[:3], func(a *array) bool { return a.size() != 1 || a.typ != start.typ }) || delta.at(0) == 0 {
		return nil, errors.New("want three scalars of one type and a step")
	}
	n := max(0, math.Ceil((limit.at(0)-start.at(0))/delta.at(0)))
	if n > maxElements {
		return nil, fmt.Errorf("%g elements", n)
	}
	y, err := newArray(start.typ, int(n))
	if err != nil {
		return nil, err
	}
	for i := range y.f {
		y.f[i] = start.f[0] + float64(i)*delta.f[0]
	}
	for i := range y.i {
		y.i[i] = start.i[0] + int64(i)*delta.i[0]
	}
	return []*array{y}, nil
}
