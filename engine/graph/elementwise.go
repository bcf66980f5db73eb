package graph

import (
	"athanor/engine/onnx"
	"athanor/engine/tensor"
)

// Add is a + b with broadcasting.
func (g *Graph) Add(a, b *Value) *Value { return g.binary("Add", a, b) }

// Sub is a - b with broadcasting.
func (g *Graph) Sub(a, b *Value) *Value { return g.binary("Sub", a, b) }

// Mul is a * b with broadcasting.
func (g *Graph) Mul(a, b *Value) *Value { return g.binary("Mul", a, b) }

// Max is the larger of a and b with broadcasting.
func (g *Graph) Max(a, b *Value) *Value { return g.binary("Max", a, b) }

func (g *Graph) binary(op string, a, b *Value) *Value {
	if a.dtype != b.dtype {
		fail(op, "types of %s and %s differ", a, b)
	}
	return g.one(op, onnx.DomainONNX, []*Value{a, b}, nil, a.dtype, broadcast(op, a, b))
}

// broadcast lines shapes up from the right; a fixed 1 stretches.
func broadcast(op string, a, b *Value) Shape {
	long, short := a.shape, b.shape
	if len(long) < len(short) {
		long, short = short, long
	}
	out := append(Shape{}, long...)
	shift := len(long) - len(short)
	for i, d := range short {
		switch l := long[shift+i]; {
		case l == d || d == Fixed(1):
		case l == Fixed(1):
			out[shift+i] = d
		default:
			fail(op, "shapes of %s and %s do not fit", a, b)
		}
	}
	return out
}

// Silu is x * sigmoid(x).
func (g *Graph) Silu(x *Value) *Value {
	wantFloat("Silu", x)
	// QuickGelu is x * sigmoid(alpha * x) in one pass over memory.
	return g.one("QuickGelu", onnx.DomainMicrosoft, []*Value{x}, []onnx.Attribute{float("alpha", 1)}, x.dtype, x.shape)
}

// Cast converts the elements to another type.
func (g *Graph) Cast(x *Value, to tensor.DType) *Value {
	attributes := []onnx.Attribute{integer("to", int(elementType("Cast", to)))}
	return g.one("Cast", onnx.DomainONNX, []*Value{x}, attributes, to, x.shape)
}

func wantFloat(op string, values ...*Value) {
	for _, v := range values {
		if v.dtype != tensor.F32 {
			fail(op, "%s is not float32", v)
		}
	}
}
