// Package data turns a dataset into batches of tokens for training.
//
// A sample is a conversation, an instruction with its answer, a text, a pair of
// answers of which one is preferred, or ready token ids. It is rendered by the
// model's own template, tokenized, and marked with a loss weight per token. A
// batch holds rows of one length; a row holds one sample, or several when they
// are packed: samples of one row do not see each other.
package data
