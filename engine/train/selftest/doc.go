// Package selftest finds out whether a runtime computes gradients that are
// right.
//
// An execution provider may have a kernel whose result is wrong in a way that
// serving does not show: ONNX Runtime's WebGPU gives a wrong second output of
// SimplifiedLayerNormalization, with which the loss is right and training is
// silently wrong. Run is called once per provider before training; a provider
// that fails is not trained on.
package selftest
