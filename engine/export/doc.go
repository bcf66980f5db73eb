// Package export writes the results of training as other programs expect them
// and says how far two forms of one model are apart.
//
// Adapter writes a PEFT folder. Merged and Full write a complete model in
// Hugging Face layout: weights in the element type of the base model, in
// shards of at most 5 GB, beside copies of its configuration, tokenizer, chat
// template and licence. One tensor at a time is in memory.
//
// Every result is written into a folder of its own beside the wanted one and
// renamed when it is whole and on the disk; a folder that stands there already
// is replaced. The same input gives the same bytes.
//
// Compare runs two forms of a model (a base with an adapter, merged, quantised)
// over the same tokens and compares the logits.
package export
