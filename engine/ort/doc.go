// Package ort runs models on ONNX Runtime. It implements compute.Runtime and is
// the only importer of onnxruntime_go.
//
// # The library
//
// ONNX Runtime is a shared library that is loaded at run time: Find locates it,
// Unpack writes out the copy that a binary built with the tag embed_onnxruntime
// carries, Open loads it. A process loads one library, once, and keeps it until
// it ends: its thread pools and allocators do not survive being unloaded.
//
// # The shim
//
// onnxruntime_go loads the library and owns the environment and the shared
// arena. What it does not wrap (logging to Go, sessions from bytes with weights
// in files, tensors over memory of ours, the optimised model on disk) goes
// through shim.c, which calls the same library. api.h declares the few entries
// of its function table that are used; a test compares them with the header
// that onnxruntime_go ships.
//
// # Invariants
//
//   - No Go pointer is kept by C; buffers live outside of the Go heap.
//   - Everything that is opened is counted by Live until it is closed.
//   - A cache file is used only when its stamp names the same model, library and
//     processor, and its content has the recorded checksum.
//   - Without cgo the package builds, and Open returns ErrNoCgo.
package ort
