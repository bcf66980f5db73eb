// Package exec runs training passes of a decoder: log-probabilities, and the
// gradients of their weighted sum, for LoRA adapters and for all weights.
//
// Words: a row is one line of a batch, a position one token of it; a part is a
// weight within its layer. B, S, H, V are the letters of package engine, T is
// B*S and C a chunk of positions.
//
// There are two ways to the same numbers. Layer by layer, one forward and one
// backward program serve all layers of one shape: only what goes from layer to
// layer is kept, and the backward program computes its layer again. As a whole,
// one program does everything and keeps every activation, which saves a third
// of the products and is for small models. Either way the weights are inputs of
// the programs, so that they lie in memory once, in the form in which the base
// is kept, and are widened where they are used.
//
// The output projection sees only the positions that carry loss, a chunk at a
// time, so that nothing of the size T*V is ever in memory.
//
// The same calls give the same bytes: a program is a fixed sequence of
// operators on a fixed number of threads, sums in Go are made in order, and
// dropout masks are a function of the seed, the batch's number and the place.
package exec
