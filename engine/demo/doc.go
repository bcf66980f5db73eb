// Package demo holds the default model: a decoder of 2.75 million parameters that is built into the
// binary, so that a fresh machine without a network can chat at once.
//
// It was trained from nothing on text that scripts/demo-model generates, and is for trying the appliance
// out, not for real work; its card is model/README.md. The files have the layout that every import has:
// config.json (Qwen2ForCausalLM), generation_config.json, tokenizer.json, tokenizer_config.json with the
// chat template, model.safetensors in float16, README.md.
//
// The package only carries bytes. It must not parse them for others, and it imports nothing but the
// standard library. testdata/reference.json has prompts with their ids, the five best next tokens and
// the greedy continuation, computed by scripts/demo-model/reference.py, for an engine to be checked with.
package demo
