// Package engine is the face of everything that runs a model.
//
// It holds request and result types and small interfaces; it imports only the
// standard library, so that the control plane can speak of generation without
// linking a runtime. Implementations live below: engine/llm runs a decoder in
// this process, engine/worker carries the same interface over a unix socket,
// engine/enginetest has a mock with knobs.
//
// # Letters
//
// Shapes in engine/nn and engine/family use one legend:
//
//	B  rows of a batch            H  hidden size
//	S  positions of this step     F  feed-forward size
//	T  positions in the cache     V  vocabulary size
//	M  capacity of the cache      D  size of one head
//	N  query heads                K  key/value heads
//	R  rows of logits per batch row
package engine
