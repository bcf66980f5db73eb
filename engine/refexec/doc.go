// Package refexec runs ONNX models in plain Go. It implements compute.Runtime
// for the operators of decoder graphs: slow, simple, the same on every machine.
//
// It is the oracle that engine/ort is compared with, operator by operator, and
// the runtime of tests where no library is installed. Weights of any type are
// widened to float32; sums run in float64, so that its error is that of the
// inputs. Operators it does not know are refused by name when compiling.
//
// Words: an array is a tensor value in flight, a kernel computes one operator.
package refexec
