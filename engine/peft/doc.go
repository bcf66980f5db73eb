// Package peft reads and writes low-rank adapters in the layout of the PEFT
// library: adapter_config.json and adapter_model.safetensors in one folder.
//
// Modules go by canonical names, those of Llama checkpoints without what stands
// before "layers.": "layers.0.self_attn.q_proj".
//
// The tensors say which modules an adapter changes. A list of target_modules
// has to agree with them; a pattern is not evaluated. What would make the
// adapter compute something else (DoRA, biases, embeddings, whole modules,
// other kinds than LORA, fields that nobody here knows) is refused by name,
// never dropped, and pickle files are not opened.
package peft
