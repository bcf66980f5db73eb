//go:build !cgo

package ort

import "athanor/engine/compute"

// Open returns ErrNoCgo: this binary was built without cgo.
func Open(Options) (compute.Runtime, error) { return nil, ErrNoCgo }

// Live is always 0 without cgo.
func Live() int { return 0 }
