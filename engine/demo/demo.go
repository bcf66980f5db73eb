package demo

import (
	"embed"
	"io/fs"
)

// Name is the id under which the model is served.
const Name = "athanor/demo-3m"

//go:embed model
var files embed.FS

// FS returns the model's files, all at the root and read-only. It is safe for concurrent use.
func FS() fs.FS {
	sub, err := fs.Sub(files, "model")
	if err != nil {
		// Only an invalid path can fail here, and the path is a constant.
		panic(err)
	}
	return sub
}
