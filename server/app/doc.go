// Package app is the composition root: it opens the data directory, wires the
// slices together, serves the API, and holds both roles of the binary. It is
// the only package that knows everyone.
//
//	Open      data directory, store, object store, identity, built-in model
//	Run       listens, serves until the context ends, drains
//	Close     ends workers, closes the store
//	RunWorker is the other role: one model, a child of this same executable
//
// The admin socket in the data directory serves the same API, and a few
// operations of its own, to the OS user that owns the directory.
package app
