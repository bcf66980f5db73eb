// Package peft reads and writes low-rank adapters in the layout of the PEFT
// library: adapter_config.json and adapter_model.safetensors in one folder.
//
// Modules go by canonical names, those of Llama checkpoints without what stands
// before "layers.": "layers.0.self_attn.q_proj".
package peft
