// Package object keeps blobs by key: weights, uploads, results. One interface,
// [Store], has two implementations, a local directory ([OpenLocal]) and any server
// that speaks S3 ([OpenS3]); both pass the suite of package objecttest.
//
// # Words
//
//   - A key names a blob, like "models/model-1/model.onnx". See [ValidateKey].
//   - A body is the stream that a Put reads, once and to its end.
//
// # Invariants
//
//   - A blob is whole or absent. A Put that fails in any way, or whose body is
//     shorter or longer than announced, leaves what was there before.
//   - A Put that returned nil survives a power cut, as far as the disk or the
//     server keeps its promises.
//   - Memory does not grow with the size of a blob.
//   - Nothing outside the directory is read or written, whatever links lie in it.
//   - Keys that begin with a dot belong to the stores and are never listed.
//
// # What it must not do
//
// It knows no record and keeps no table: which blobs are needed, and what their
// digests should be, stands in package store.
package object
