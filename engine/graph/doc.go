// Package graph builds ONNX models operator by operator, with shapes checked
// while they are built.
//
// A dimension is a number or a symbol; two symbols of one name are the same
// size. Every operator method infers the type and shape of its result and
// panics with *Error where its inputs do not fit; Build is the only place that
// recovers it. Value.Dims asserts a shape at the doors of a function, so that
// a mistake shows where it was made and the code can be read with its shapes.
//
//	model, err := graph.Build(func(g *graph.Graph) {
//		x := g.Input("x", tensor.F32, B, H)
//		w := g.Floats("w", []int{4, 8}, weights)
//		y := g.MatMulTransposed(x, w).Dims(B, graph.Fixed(4))
//		g.Output("y", y)
//	})
//
// Product joins dimensions: Reshape makes rows B*S of a batch of texts and takes
// them apart again. The size of a symbol is that of an input's dimension.
//
// Operators of ONNX itself take float32 or float64, run on every execution
// provider and can be differentiated (package grad). Those of com.microsoft,
// and RMSNorm, are in float32 alone: faster forms for serving.
//
// Names of nodes and values follow from scope, operator and order alone: the
// same calls give the same model, byte for byte.
//
// A Graph is used by one goroutine, inside the function given to Build.
package graph
