// Package gradcheck compares gradients with finite differences.
//
// Check takes a function written as a graph, differentiates it with package
// grad, runs it in float64 and compares each gradient with central differences
// of the function itself; then it runs it in float32 and compares with that.
//
//	_, err := gradcheck.Check(ctx, rt, rt, gradcheck.Problem{
//		Sizes: map[string]int{"T": 5},
//		Build: func(g *graph.Graph) (outputs, wrt []*graph.Value) {
//			x := g.Input("x", tensor.F32, graph.Symbol("T"), graph.Fixed(4))
//			return []*graph.Value{g.Softmax(x)}, []*graph.Value{x}
//		},
//	})
//
// Its parts serve other checks: Double makes a float64 model of a float32 one,
// and a Program runs a model on plain Go values.
package gradcheck
