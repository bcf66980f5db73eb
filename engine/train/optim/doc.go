// Package optim updates trainable tensors from their gradients.
//
// AdamW keeps the two moments of every tensor in buffers of the runtime and
// computes its update with one elementwise ONNX program, run over pieces of at
// most a million elements whose results are written over their inputs. A
// program of its own for that is what makes writing in place safe: every input
// is read once, before the result of the same element is stored.
//
// The gradients that it is given are sums; what makes a mean of them, and what
// bounds their norm, is one factor of Step.
//
// Everything is done in an order that does not depend on time or on the number
// of goroutines, so that the same gradients give the same bytes.
package optim
