// Package sched decides what one language model computes next.
//
// Plan is a pure function from the state of the queue and the cache to one
// Step; engine/llm executes it. Decode steps and chunks of prompts alternate,
// so that a long prompt never stalls running answers by more than one chunk.
package sched
