package refexec

import (
	"fmt"
	"math"
	"slices"

	"athanor/engine/onnx"
)

// matMul is the batched product with broadcasting; FusedMatMul adds transA,
// transB and alpha.
func matMul(c *call) ([]*array, error) {
	if err := c.needFloats(2); err != nil {
		return nil, err
	}
	for _, name := range []string{"transBatchA", "transBatchB"} {
		if err := c.refuse(name, 0); err != nil {
			return nil, err
		}
	}
	a, b := c.in[0], c.in[1]
	ashape, bshape := slices.Clone(a.shape), slices.Clone(b.shape)
	if len(ashape) == 1 {
		ashape = []int{1, ashape[0]}
	}
	if len(bshape) == 1 {
		bshape = []int{bshape[0], 1}
	}
	if len(ashape) < 2 || len(bshape) < 2 {
		return nil, fmt.Errorf("shapes %v and %v", a.shape, b.shape)
	}
	x := matrix{shape: ashape[len(ashape)-2:], transposed: c.int("transA", 0) != 0}
	w := matrix{shape: bshape[len(bshape)-2:], transposed: c.int("transB", 0) != 0}
	if x.cols() != w.rows() {
		return nil, fmt.Errorf("shapes %v and %v", a.shape, b.shape)
	}
	batch, err := broadcast(ashape[:len(ashape)-2], bshape[:len(bshape)-2])
	if err != nil {
		return nil, err
	}
	full := slices.Concat(batch, []int{x.rows(), w.cols()})
	y, err := newArray(a.typ, full...)
	if err != nil {
		return nil, err
	}
	alpha := float64(c.float("alpha", 1))
	asize, bsize, ysize := x.size(), w.size(), x.rows()*w.cols()
	walk(batch, func(at int, o []int) {
		x.data, w.data = a.f[o[0]*asize:][:asize], b.f[o[1]*bsize:][:bsize]
		multiply(y.f[at*ysize:][:ysize], x, w, alpha)
	}, spread(ashape[:len(ashape)-2], batch), spread(bshape[:len(bshape)-2], batch))
	if len(b.shape) == 1 {
		full = slices.Delete(full, len(full)-1, len(full))
	}
	if len(a.shape) == 1 {
		at := len(batch)
		full = slices.Delete(full, at, at+1)
	}
	return []*array{y.withShape(full)}, nil
}

// matrix is a row-major matrix that may be read transposed.
type matrix struct {
	data       []float64
	shape      []int // as stored
	transposed bool
}

func (m matrix) size() int { return m.shape[0] * m.shape[1] }

func (m matrix) rows() int {
	if m.transposed {
		return m.shape[1]
	}
	return m.shape[0]
}

func (m matrix) cols() int { return m.shape[0] + m.shape[1] - m.rows() }

// steps is how far the next row and the next column are.
func (m matrix) steps() (row, col int) {
	if m.transposed {
		return 1, m.shape[1]
	}
	return m.shape[1], 1
}

func multiply(y []float64, a, b matrix, alpha float64) {
	arow, acol := a.steps()
	brow, bcol := b.steps()
	rows, cols, inner := a.rows(), b.cols(), a.cols()
	for i := range rows {
		for j := range cols {
			sum := 0.0
			for k, at, bt := 0, i*arow, j*bcol; k < inner; k, at, bt = k+1, at+acol, bt+brow {
				sum += a.data[at] * b.data[bt]
			}
			y[i*cols+j] = alpha * sum
		}
	}
}

// gemm is alpha*A*B + beta*C.
func gemm(c *call) ([]*array, error) {
	if err := c.needFloats(2); err != nil {
		return nil, err
	}
	a, b := c.in[0], c.in[1]
	if len(a.shape) != 2 || len(b.shape) != 2 {
		return nil, fmt.Errorf("shapes %v and %v", a.shape, b.shape)
	}
	x := matrix{a.f, a.shape, c.int("transA", 0) != 0}
	w := matrix{b.f, b.shape, c.int("transB", 0) != 0}
	if x.cols() != w.rows() {
		return nil, fmt.Errorf("shapes %v and %v", a.shape, b.shape)
	}
	y, err := newArray(a.typ, x.rows(), w.cols())
	if err != nil {
		return nil, err
	}
	multiply(y.f, x, w, float64(c.float("alpha", 1)))
	bias := c.arg(2)
	if bias == nil {
		return []*array{y}, nil
	}
	shape, err := broadcast(y.shape, bias.shape)
	if err != nil || !slices.Equal(shape, y.shape) {
		return nil, fmt.Errorf("bias %v for %v", bias.shape, y.shape)
	}
	beta := float64(c.float("beta", 1))
	walk(shape, func(at int, o []int) { y.f[at] += beta * bias.f[o[0]] }, spread(bias.shape, shape))
	return []*array{y}, nil
}

func softmax(c *call) ([]*array, error) {
	if err := c.needFloats(1); err != nil {
		return nil, err
	}
	x := c.in[0]
	axis, err := axisOf(c.int("axis", -1), len(x.shape))
	if err != nil {
		return nil, err
	}
	y, err := newArray(x.typ, x.shape...)
	if err != nil {
		return nil, err
	}
	n, inner := x.shape[axis], product(x.shape[axis+1:])
	row := make([]float64, n)
	for o := range product(x.shape[:axis]) {
		for k := range inner {
			at := o*n*inner + k
			for j := range row {
				row[j] = x.f[at+j*inner]
			}
			normalise(row)
			for j, v := range row {
				y.f[at+j*inner] = v
			}
		}
	}
	return []*array{y}, nil
}

// normalise turns logits into probabilities in place.
func normalise(row []float64) {
	if len(row) == 0 {
		return
	}
	top, sum := slices.Max(row), 0.0
	for j, v := range row {
		row[j] = math.Exp(v - top)
		sum += row[j]
	}
	for j := range row {
		row[j] /= sum
	}
}

func reduceMean(c *call) ([]*array, error) {
	return reduce(c, 0, func(acc, v float64) float64 { return acc + v }, func(acc float64, n int) float64 { return acc / float64(n) })
}

func reduceSum(c *call) ([]*array, error) {
	return reduce(c, 0, func(acc, v float64) float64 { return acc + v }, func(acc float64, _ int) float64 { return acc })
}

func reduceMax(c *call) ([]*array, error) {
	return reduce(c, math.Inf(-1), math.Max, func(acc float64, _ int) float64 { return acc })
}

// reduce folds the elements along some axes, all by default.
func reduce(c *call, start float64, fold func(acc, v float64) float64, end func(acc float64, n int) float64) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	x, axes := c.in[0], c.ints(1, "axes")
	if len(axes) == 0 && c.int("noop_with_empty_axes", 0) != 0 {
		return []*array{x}, nil
	}
	gone := make([]bool, len(x.shape))
	for i := range gone {
		gone[i] = len(axes) == 0
	}
	for _, a := range axes {
		i, err := axisOf(a, len(x.shape))
		if err != nil {
			return nil, err
		}
		gone[i] = true
	}
	kept, squeezed := slices.Clone(x.shape), []int{}
	for i, g := range gone {
		if g {
			kept[i] = 1
		} else {
			squeezed = append(squeezed, x.shape[i])
		}
	}
	acc, err := newArray(onnx.Double, kept...)
	if err != nil {
		return nil, err
	}
	sums := acc.f
	for i := range sums {
		sums[i] = start
	}
	walk(x.shape, func(at int, o []int) { sums[o[0]] = fold(sums[o[0]], x.at(at)) }, spread(kept, x.shape))
	y, err := newArray(x.typ, kept...)
	if err != nil {
		return nil, err
	}
	n := x.size() / max(1, len(sums))
	for i, s := range sums {
		if isFloat(x.typ) {
			y.f[i] = end(s, n)
		} else {
			y.i[i] = int64(end(s, n))
		}
	}
	if c.int("keepdims", 1) == 0 {
		y = y.withShape(squeezed)
	}
	return []*array{y}, nil
}
