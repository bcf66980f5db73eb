// Package weights reads model weights from disk and writes them in the form
// that a graph uses.
//
// An Archive is a folder of safetensors, one file or shards with an index,
// mapped read-only into memory. Nothing in a file is believed: header length,
// JSON, types, shapes and offsets are checked before anything is mapped, and
// the byte buffer must be covered by its tensors without overlap or hole, as
// the format demands. Pickle (pytorch_model.bin, .pt, .pth, .ckpt) is refused
// and never opened.
//
// A Writer appends converted tensors to one external-data file of an ONNX
// model, a few rows at a time on all cores, so that a model is never in memory
// as a whole. Format describes block quantisation in the layout of the
// com.microsoft operators MatMulNBits and GatherBlockQuantized.
//
// Save and SaveSharded write safetensors, as the same bytes for the same
// content, a piece of one tensor at a time.
//
// A file that is cut short after it was mapped makes the pages behind its new
// end fault. Reads through Matrix and Float32 turn that fault into an error;
// whoever touches Entry.Bytes directly wraps the access in Guard, and does so
// in an import or a worker, not in the control plane.
package weights
