// Package sample turns logits into tokens.
//
// The order is that of the Hugging Face generation utilities: mask, penalties
// and bias on the raw logits, then temperature, top-k, top-p, min-p, then one
// draw. Log-probabilities that are reported are those of the raw logits.
//
// # Determinism
//
// A Sampler draws from a PCG generator seeded by Params.Seed, so equal logits
// and seeds give equal tokens on every machine. Ties are broken by the lower id.
//
// # Cost
//
// All selections are linear in the vocabulary: nothing is sorted but what is
// reported.
package sample
