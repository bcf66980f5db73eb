package selftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"athanor/engine/compute"
	"athanor/engine/grad/gradcheck"
	"athanor/engine/onnx"
	"athanor/engine/refexec"
)

// Bound is the largest error that passes, relative to the largest element of a
// tensor. It leaves room for the 10-bit products of TF32; a wrong kernel is
// wrong by much more.
const Bound = 2e-3

// ErrWrong is wrapped by the error of Run when the runtime computes, but not
// what it should.
var ErrWrong = errors.New("the runtime fails the self-test of training")

// Run computes a small model with its loss and the gradients of all weights on
// rt, and compares each with a float64 computation in plain Go. The error names
// the operator whose result is wrong though its inputs are right, or the tensor
// where that cannot be told. It takes some tens of milliseconds.
func Run(ctx context.Context, rt compute.Runtime) error {
	wrong := compare(ctx, rt, false)
	if !errors.Is(wrong, ErrWrong) {
		return wrong
	}
	// Once more with every intermediate result, in the order of computation.
	if err := compare(ctx, rt, true); err != nil {
		return err
	}
	return wrong // only where operators are fused
}

func compare(ctx context.Context, rt compute.Runtime, all bool) error {
	model, err := build(all)
	if err != nil {
		return err
	}
	double, err := gradcheck.Double(model)
	if err != nil {
		return err
	}
	want, err := results(ctx, refexec.New(), double)
	if err != nil {
		return err
	}
	got, err := results(ctx, rt, model)
	if err != nil {
		return fmt.Errorf("self-test of training on %s: %w", rt.Name(), err)
	}
	for _, out := range model.Graph.Outputs {
		if _, err := gradcheck.Compare(out.Name, got[out.Name], want[out.Name], Bound); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrWrong, rt.Name(), err)
		}
	}
	return nil
}

// results runs a model on inputs that are always the same.
func results(ctx context.Context, rt compute.Runtime, m *onnx.Model) (gradcheck.Values, error) {
	p, err := gradcheck.Open(rt, m, sizes)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	in, err := p.Fill(rand.New(rand.NewPCG(1, 1)), given)
	if err != nil {
		return nil, err
	}
	return p.Run(ctx, in)
}
