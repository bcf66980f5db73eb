// Command pack compresses the libraries below engine/ort/lib for a build with
// the tag embed_onnxruntime. It must be run in the repository's root:
//
//	go run ./engine/ort/internal/pack linux-amd64
//
// It refuses a library that engine/ort/onnxruntime.pins does not list.
package main
