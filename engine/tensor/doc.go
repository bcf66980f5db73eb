// Package tensor has element types, host tensors and the half-precision
// conversions. It is a leaf: standard library only.
package tensor
