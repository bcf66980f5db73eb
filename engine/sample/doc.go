// Package sample turns logits into tokens, and finds stop strings in the text
// that comes of them.
//
// The order is that of the Hugging Face generation utilities: repetition,
// presence and frequency penalties, bias and mask on the raw logits, then
// temperature, top-k, top-p and min-p, each on what the one before left, then
// one draw. Log-probabilities that are reported are those of the raw logits.
//
// # Determinism
//
// A Sampler draws from a PCG generator seeded by Params.Seed, and sums in a fixed
// order with its own exponential, so equal logits and seeds give equal tokens on
// every machine. Ties are broken by the lower id.
//
// # Cost
//
// All selections are linear in the vocabulary: nothing is sorted but what is
// reported and a small sample.
package sample
