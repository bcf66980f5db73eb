// Package prompt turns chat messages into the prompt text of a model, with the
// chat template that the model came with.
//
// A template is a Jinja program from a downloaded model, so it is untrusted; the
// interpreter in engine/prompt/jinja bounds what it may do. What it renders is
// byte for byte what Hugging Face transformers' apply_chat_template renders.
//
// # Words
//
//   - template text: what the template's author wrote, and the BOS and EOS
//     tokens. It may hold special tokens.
//   - data: messages, tools and template arguments. Whatever it says, it is
//     ordinary text.
//   - segment: a stretch of the prompt that is all template text (trusted) or
//     all data (untrusted).
//
// The text of a prompt already has its BOS token where the template writes one:
// encode it without adding special tokens, look for special tokens in trusted
// segments only, and never across the border of two segments.
package prompt
