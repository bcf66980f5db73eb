// Package llm runs one decoder language model in this process: prompt ->
// tokens -> steps -> text stream.
//
// Words: a request is one Generate call; a sequence is one of its choices; a
// row is a sequence's place in the shared key/value cache; a step is one run
// of the program, either a chunk of one prompt or one token for every decoding
// sequence.
//
// # Goroutines
//
// One loop goroutine owns the rows, the buffers and the program. Generate
// hands sequences to it and drains an outbox of events, so a slow client never
// holds up the batch. A cancelled request leaves its row before the next step.
//
// # Adapters
//
// A model loaded for adapters runs rows with different low-rank adapters, and
// with none, in one step over one copy of the weights. An adapter is read from
// its folder when the first row that needs it is admitted, and stays in memory
// until others need its place; never does one go that a row is using. Steps in
// which no row has an adapter compute with zeros of rank 1.
//
// # On disk
//
// Load turns a model directory (safetensors, config, tokenizer) into graphs
// and a file of converted weights under the cache directory, once per content
// and quantisation; the graph with adapters uses the same file. The cache is
// derived and safe to delete.
package llm
