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

// Div is a / b with broadcasting.
func (g *Graph) Div(a, b *Value) *Value { return g.binary("Div", a, b) }

// Max is the larger of a and b with broadcasting.
func (g *Graph) Max(a, b *Value) *Value { return g.binary("Max", a, b) }

func (g *Graph) binary(op string, a, b *Value) *Value {
	if a.dtype != b.dtype {
		fail(op, "types of %s and %s differ", a, b)
	}
	return g.one(op, onnx.DomainONNX, []*Value{a, b}, nil, a.dtype, fit(op, a, b))
}

// fit is the shape of two values with broadcasting.
func fit(op string, a, b *Value) Shape {
	shape, ok := broadcast(a.shape, b.shape)
	if !ok {
		fail(op, "shapes of %s and %s do not fit", a, b)
	}
	return shape
}

// broadcast lines shapes up from the right; a fixed 1 stretches.
func broadcast(a, b Shape) (Shape, bool) {
	long, short := a, b
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
			return nil, false
		}
	}
	return out, true
}

// Equal tells where a = b, with broadcasting.
func (g *Graph) Equal(a, b *Value) *Value { return g.compare("Equal", a, b) }

// LessOrEqual tells where a <= b, with broadcasting.
func (g *Graph) LessOrEqual(a, b *Value) *Value { return g.compare("LessOrEqual", a, b) }

func (g *Graph) compare(op string, a, b *Value) *Value {
	if a.dtype != b.dtype {
		fail(op, "types of %s and %s differ", a, b)
	}
	return g.one(op, onnx.DomainONNX, []*Value{a, b}, nil, tensor.Bool, fit(op, a, b))
}

// And tells where both a and b are true, with broadcasting.
func (g *Graph) And(a, b *Value) *Value {
	if a.dtype != tensor.Bool {
		fail("And", "%s is not of truth values", a)
	}
	return g.binary("And", a, b)
}

// Where is a where the truth value is true and b elsewhere, with broadcasting.
func (g *Graph) Where(truth, a, b *Value) *Value {
	if truth.dtype != tensor.Bool || a.dtype != b.dtype {
		fail("Where", "%s between %s and %s", truth, a, b)
	}
	shape, ok := broadcast(truth.shape, fit("Where", a, b))
	if !ok {
		fail("Where", "shapes of %s, %s and %s do not fit", truth, a, b)
	}
	return g.one("Where", onnx.DomainONNX, []*Value{truth, a, b}, nil, a.dtype, shape)
}

// Neg is -x.
func (g *Graph) Neg(x *Value) *Value { return g.unary("Neg", x) }

// Exp is e to the x.
func (g *Graph) Exp(x *Value) *Value { return g.unary("Exp", x) }

// Log is the natural logarithm of x.
func (g *Graph) Log(x *Value) *Value { return g.unary("Log", x) }

// Sqrt is the square root of x.
func (g *Graph) Sqrt(x *Value) *Value { return g.unary("Sqrt", x) }

// Reciprocal is 1 / x.
func (g *Graph) Reciprocal(x *Value) *Value { return g.unary("Reciprocal", x) }

// Sigmoid is 1 / (1 + exp(-x)).
func (g *Graph) Sigmoid(x *Value) *Value { return g.unary("Sigmoid", x) }

// Tanh is the hyperbolic tangent of x.
func (g *Graph) Tanh(x *Value) *Value { return g.unary("Tanh", x) }

// Erf is the error function of x. ONNX Runtime has it in float32 only.
func (g *Graph) Erf(x *Value) *Value { return g.unary("Erf", x) }

func (g *Graph) unary(op string, x *Value) *Value {
	wantReal(op, x)
	return g.one(op, onnx.DomainONNX, []*Value{x}, nil, x.dtype, x.shape)
}

// Identity is x under another name: it lets one value be two outputs.
func (g *Graph) Identity(x *Value) *Value {
	return g.one("Identity", onnx.DomainONNX, []*Value{x}, nil, x.dtype, x.shape)
}

// StopGradient is x, taken as a constant by automatic differentiation.
func (g *Graph) StopGradient(x *Value) *Value {
	y := g.Identity(x)
	g.b.nodes[len(g.b.nodes)-1].stop = true
	return y
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

// wantReal wants float32 or float64, the same for all.
func wantReal(op string, values ...*Value) {
	for _, v := range values {
		if v.dtype != tensor.F32 && v.dtype != tensor.F64 {
			fail(op, "%s is neither float32 nor float64", v)
		}
		if v.dtype != values[0].dtype {
			fail(op, "types of %s and %s differ", values[0], v)
		}
	}
}

// wantFloat is for operators with float32 kernels only.
func wantFloat(op string, values ...*Value) {
	for _, v := range values {
		if v.dtype != tensor.F32 {
			fail(op, "%s is not float32", v)
		}
	}
}
