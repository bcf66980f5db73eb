//go:build embed_onnxruntime

package ort

import _ "embed" // for the library

//go:embed lib/linux-arm64/libonnxruntime.so.1.zst
var embeddedLibrary string

//go:embed lib/linux-arm64/libonnxruntime.so.1.sha256
var embeddedDigest string
