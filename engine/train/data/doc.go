// Package data turns datasets into batches of tokens for training.
//
// # The way of a sample
//
//	file ── Tokenize ──> Set on disk ── Sampler ──> Batch
//	JSONL: sample ── chat template ── tokenizer ──> tokens and loss weights
//	Parquet: row  ─────────────────────────────────> tokens and loss weights
//
// # Words
//
//   - A sample is one line of a JSONL file or one row of a Parquet file, as a
//     sequence of tokens; a preference sample is a pair of sequences, the chosen
//     and the rejected one, with the same prompt.
//   - The weight of a token is what its prediction counts in the loss; 0 means that
//     the model reads the token and is not taught to say it.
//   - A turn is what one message contributes to the rendered conversation. The turn
//     of an assistant begins where the prompt that asks for it ends, and ends with
//     the token at which a served answer stops.
//   - A row is a row of a batch: one sample, or several packed one after the other,
//     which do not see each other.
//
// # Which tokens carry loss
//
// Only the model's own chat template decides. A template with {% generation %}
// blocks says it itself. For any other, the conversation is rendered whole and once
// more up to each answer, with the generation prompt: where that rendering ends in
// the whole, the answer begins, exactly as in serving. A template that renders the
// beginning of a conversation differently once it goes on is followed as far as the
// places can be told for certain, and refused beyond.
//
// The border between prompt and answer is also a border of tokens, because a served
// model has read the tokens of the prompt when it begins to answer. What messages
// say can never become a special token, whatever it looks like.
//
// # Invariants
//
//   - The memory of Tokenize does not grow with the file; a Set is read from disk.
//   - The same file, model and options give the same bytes, and the same seed the
//     same batches in the same order, on every machine.
//   - A Set is complete or absent.
package data
