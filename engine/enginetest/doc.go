// Package enginetest has what tests of the engine share: a mock Generator with
// knobs, the contract that every Generator must keep, and makers of model
// directories with random weights.
package enginetest
