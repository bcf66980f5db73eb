package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"athanor/engine/tensor"
)

// Dim is one dimension: a size, or a symbol for a size known only at run time.
// Dims are comparable.
type Dim struct {
	size   int
	symbol string
}

// Product is the dimension that two or more are together when a Reshape joins
// them: a number, or a symbol such as "2*B*S". The order does not matter.
func Product(dims ...Dim) Dim {
	n, symbols := Shape(dims).product()
	if len(symbols) == 0 {
		return Fixed(n)
	}
	if n != 1 {
		symbols = append([]string{strconv.Itoa(n)}, symbols...)
	}
	return Symbol(strings.Join(symbols, "*"))
}

// factors takes a product apart.
func (d Dim) factors() (n int, symbols []string) {
	if d.symbol == "" {
		return d.size, nil
	}
	n = 1
	for _, f := range strings.Split(d.symbol, "*") {
		if size, err := strconv.Atoi(f); err == nil {
			n *= size
		} else {
			symbols = append(symbols, f)
		}
	}
	return n, symbols
}

// Fixed is a dimension of n, which must not be negative.
func Fixed(n int) Dim {
	if n < 0 {
		fail("Fixed", "dimension of %d", n)
	}
	return Dim{size: n}
}

// Symbol is a named dimension. A name with a "*" is a Product.
func Symbol(name string) Dim { return Dim{symbol: name} }

// Size is the number, and whether there is one.
func (d Dim) Size() (int, bool) { return d.size, d.symbol == "" }

// String is the number or the symbol.
func (d Dim) String() string {
	if d.symbol != "" {
		return d.symbol
	}
	return strconv.Itoa(d.size)
}

// Shape is a list of dimensions, outermost first; a scalar has none.
type Shape []Dim

// String looks like [B,S,64].
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// product gives the product of the fixed dimensions and the sorted symbols.
func (s Shape) product() (int, []string) {
	n, symbols := 1, []string{}
	for _, d := range s {
		size, names := d.factors()
		n *= size
		symbols = append(symbols, names...)
	}
	slices.Sort(symbols)
	return n, symbols
}

// Value is a tensor of the graph: an input, a weight or the result of a node.
type Value struct {
	name  string
	dtype tensor.DType
	shape Shape
	fixed bool    // the name cannot change: an input, a weight or an output
	ints  []int64 // the elements of a constant made by Int64s or Int64
}

// Name is the name in the model; the name of the result of a node changes when
// it becomes an output.
func (v *Value) Name() string { return v.name }

// Int64s are the elements of a constant made by Graph.Int64s, nil for all
// other values. The caller must not change them.
func (v *Value) Int64s() []int64 { return v.ints }

// DType is the element type.
func (v *Value) DType() tensor.DType { return v.dtype }

// Shape is the inferred shape; the caller must not change it.
func (v *Value) Shape() Shape { return v.shape }

// Rank is the number of dimensions.
func (v *Value) Rank() int { return len(v.shape) }

// Dim is one dimension; a negative index counts from the end.
func (v *Value) Dim(i int) Dim {
	if i < 0 {
		i += len(v.shape)
	}
	if i < 0 || i >= len(v.shape) {
		fail("Dim", "%s has no dimension %d", v, i)
	}
	return v.shape[i]
}

// Dims asserts the shape and returns v.
func (v *Value) Dims(want ...Dim) *Value {
	if !slices.Equal(v.shape, want) {
		fail("Dims", "%s, want shape %s", v, Shape(want))
	}
	return v
}

// String names the value with its type and shape.
func (v *Value) String() string { return fmt.Sprintf("%s %s%s", v.name, v.dtype, v.shape) }

// Error is a mistake in the construction of a graph.
type Error struct {
	Op      string // operator or method
	Message string
}

func (e *Error) Error() string { return "graph: " + e.Op + ": " + e.Message }

func fail(op, format string, args ...any) {
	panic(&Error{Op: op, Message: fmt.Sprintf(format, args...)})
}
