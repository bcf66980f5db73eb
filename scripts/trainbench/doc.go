// Command trainbench measures training against PyTorch and against what the
// machine can multiply: a decoder with random weights (hidden 1024, 8 layers,
// feed-forward 2816, 16 heads over 4, vocabulary 32000) is trained for some
// steps on 2 x 512 tokens, forward, backward and AdamW, in every way that
// package engine/train/exec has, and by reference.py. Each runs in a process of
// its own, one after the other. engine/BENCH.md explains the columns.
//
//	go run ./scripts/trainbench [-dir DIR] [-steps 5] [-python /usr/bin/python3] [-only whole,layered]
package main
