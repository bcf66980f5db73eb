package grad

import (
	"maps"
	"slices"

	"athanor/engine/graph"
)

// rule gives the gradients of a node's inputs, nil or left out where there is
// none. What is not wanted is ignored and need not be made.
type rule func(s *step) []*graph.Value

// rules by operator.
var rules = map[string]rule{
	"Add": add, "Sub": sub, "Mul": mul, "Div": div, "Max": maximum, "Where": where, // two operands
	"Neg": neg, "Exp": exp, "Log": log, "Sqrt": sqrt, "Reciprocal": reciprocal, // one operand
	"Sigmoid": sigmoid, "Tanh": tanh, "Erf": erf, "Cast": cast, "Identity": identity,
	"MatMul": matMul, "Gemm": gemm, // products
	"Softmax": softmax, "ReduceSum": reduceSum, "ReduceMean": reduceMean, "ReduceMax": reduceMax, // along dimensions
	"Reshape": reshape, "Unsqueeze": reshape, "Squeeze": reshape, "Transpose": transpose, "Expand": expand, // moves
	"Concat": concat, "Split": split, "Slice": slice,
	"Gather": gather, "GatherND": gatherRows, "GatherElements": gatherElements, "ScatterElements": scatterElements,
}

// one is the gradient of input 0.
func one(dx *graph.Value) []*graph.Value { return []*graph.Value{dx} }

// Operators lists the operators that have a rule, in order.
func Operators() []string { return slices.Sorted(maps.Keys(rules)) }
