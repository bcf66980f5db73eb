// Package refexec runs ONNX models in plain Go. It implements compute.Runtime
// for the operators of decoder graphs: slow, simple, the same on every machine.
//
// It is the oracle that engine/ort is compared with, operator by operator, and
// the runtime of tests where no library is installed. Operators compute
// in float64 and their results are rounded once to the type that the model
// declares, so that a float64 model is the reference of a float32 one. Operators it does not know are refused by name when compiling.
//
// Words: an array is a tensor value in flight, a kernel computes one operator.
package refexec
