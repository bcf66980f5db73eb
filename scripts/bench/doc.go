// Command bench measures the engine against the memory bandwidth of the
// machine: a decoder with random weights in the shape of Llama 3.2 1B is
// converted, loaded and decoded through package llm, tokenizer and sampler
// included, and one table is printed. It needs about 14 GB of disk below -dir,
// which it reuses. engine/BENCH.md explains the columns.
//
//	go run ./scripts/bench [-dir DIR] [-formats int4/32,int4/128,int8/32] [-fp32]
package main
