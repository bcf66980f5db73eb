//go:build !embed_onnxruntime || !linux || !(amd64 || arm64)

package ort

// Set by the files for one platform in a build with the tag embed_onnxruntime.
var embeddedLibrary, embeddedDigest string
