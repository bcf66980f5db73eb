// Package nn has the building blocks of neural networks as pieces of a graph:
// linear maps in float32 or quantised blocks, RMS norms, rotary positions,
// grouped-query attention and gated feed-forward layers.
//
// A block is a small struct of weights (graph values) with an Apply method
// that adds its operators to a graph. Blocks know no model family: what a
// family does differently is a field or another composition. Shapes are
// written with the letters that package engine lists.
package nn
