// Package compute is the wall between the engine and a tensor runtime.
//
// A Runtime compiles ONNX models into Programs that run over Buffers. No C
// type and no unsafe crosses it. engine/ort implements it on ONNX Runtime,
// engine/refexec in plain Go as the oracle and the fake.
package compute
