// Package onnx reads and writes ONNX models as plain Go values.
//
// The structures follow onnx.proto3 (IR version 10); fields that Athanor never
// writes are skipped when reading. Weights may stay outside of the model in a
// file of their own ("external data").
package onnx
