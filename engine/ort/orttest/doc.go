// Package orttest opens ONNX Runtime for tests.
package orttest
