// Package grad differentiates graphs: it adds to a graph under construction
// the operators that compute gradients, in reverse mode (Linnainmaa 1976;
// Baydin and others 2018, arXiv:1502.05767).
//
// The result is an ordinary inference graph of standard ONNX operators, which
// every execution provider has: no Sum, no LogSoftmax, no fused operators.
//
//	model, err := graph.Build(func(g *graph.Graph) {
//		x, w := g.Input("x", tensor.F32, T, K), g.Input("w", tensor.F32, N, K)
//		y := g.Gemm(x, w, false, true)
//		dy := g.Input("dy", tensor.F32, T, N)
//		g.Output("dw", grad.Of(g, []*graph.Value{y}, []*graph.Value{dy}, []*graph.Value{w})[0])
//	})
//
// There is one rule per operator, in the table rules. A rule takes the
// gradients of a node's outputs and gives those of its inputs; it uses what the
// forward graph has computed and makes only what is asked for. An operator
// without a rule between wrt and outputs is an error that names it; operators
// whose results are integers or truth values are constants, and so is what
// Graph.StopGradient returns.
//
// Words: dy is the gradient of an output y. A gradient is loose when some of
// its dimensions are 1 where those of its value are larger: it is the same all
// along them. Rules that multiply by a value of full size take it as it is,
// which saves a pass over memory; others stretch it first.
package grad
