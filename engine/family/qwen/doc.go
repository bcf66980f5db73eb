// Package qwen reads the configs of the dense Qwen decoders: Qwen2 and 2.5,
// and Qwen3.
package qwen
