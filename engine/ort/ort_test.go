package ort_test

import (
	"fmt"
	"os"
	"testing"

	"athanor/engine/compute/computetest"
	"athanor/engine/ort"
	"athanor/engine/ort/orttest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if n := ort.Live(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d programs or buffers were not closed\n", n)
		code = 1
	}
	os.Exit(code)
}

func TestConformance(t *testing.T) {
	computetest.Conformance(t, orttest.Open(t))
}
