// Package kv keeps account of the rows of a shared key/value cache. It moves
// no memory: it says which rows to move, and the owner of the memory does it.
//
// # Invariants
//
// Rows 0..Decoding-1 belong to sequences that decode, and, when there is one,
// row Decoding belongs to the sequence whose prompt is being read. So the rows
// of a decode step are always contiguous, as the attention operator needs them.
package kv
