// Package llama reads the configs of the Llama family: Llama 2 to 3.3,
// TinyLlama, SmolLM2, Yi and what else calls itself LlamaForCausalLM.
package llama
