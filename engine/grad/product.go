package grad

import (
	"slices"

	"athanor/engine/graph"
)

// matMul: dA = dY * transposed B, dB = transposed A * dY.
func matMul(s *step) []*graph.Value {
	a, b, d, dy := s.Inputs[0], s.Inputs[1], make([]*graph.Value, 2), s.dy()
	if s.wants(0) {
		d[0] = s.g.MatMul(dy, s.transposed(b))
	}
	if s.wants(1) {
		d[1] = s.g.MatMul(s.transposed(a), dy)
	}
	return d
}

// transposed swaps the last two dimensions of v, without work where the
// forward graph has that.
func (s *step) transposed(v *graph.Value) *graph.Value {
	perm := swap(v.Rank())
	if n := s.producer[v]; n != nil && n.Op == "Transpose" && slices.Equal(n.Ints("perm"), perm) {
		return n.Inputs[0]
	}
	return s.g.Transpose(v, perm...)
}

// swap is the permutation that exchanges the last two dimensions.
func swap(rank int) []int {
	perm := make([]int, rank)
	for i := range perm {
		perm[i] = i
	}
	perm[rank-1], perm[rank-2] = rank-2, rank-1
	return perm
}

// gemm reads each matrix as the forward product has it, or the other way
// round, so that nothing is transposed in memory. A linear layer y = x * w
// transposed has dx = dy * w and dw = dy transposed * x.
func gemm(s *step) []*graph.Value {
	a, b, d, dy := s.Inputs[0], s.Inputs[1], make([]*graph.Value, 2), s.dy()
	transA, transB := s.Int("transA") != 0, s.Int("transB") != 0
	switch {
	case !s.wants(0):
	case transA:
		d[0] = s.g.Gemm(b, dy, transB, true)
	default:
		d[0] = s.g.Gemm(dy, b, false, !transB)
	}
	switch {
	case !s.wants(1):
	case transB:
		d[1] = s.g.Gemm(dy, a, true, transA)
	default:
		d[1] = s.g.Gemm(a, dy, !transA, false)
	}
	return d
}
