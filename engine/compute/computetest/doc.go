// Package computetest has what tests of a compute.Runtime share: short ways to
// write models, fill and compare buffers, and a conformance suite.
package computetest
