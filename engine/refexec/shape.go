package refexec

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"athanor/engine/onnx"
)

func identity(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	return c.in[:1], nil
}

func constant(c *call) ([]*array, error) {
	for name, a := range c.attrs {
		switch name {
		case "value":
			return one(load(a.T, ""))
		case "value_int":
			return []*array{{typ: onnx.Int64, shape: []int{}, i: []int64{a.I}}}, nil
		case "value_ints":
			return []*array{{typ: onnx.Int64, shape: []int{len(a.Ints)}, i: a.Ints}}, nil
		case "value_float":
			return []*array{{typ: onnx.Float, shape: []int{}, f: []float64{float64(a.F)}}}, nil
		case "value_floats":
			y := &array{typ: onnx.Float, shape: []int{len(a.Floats)}}
			for _, v := range a.Floats {
				y.f = append(y.f, float64(v))
			}
			return []*array{y}, nil
		}
	}
	return nil, errors.New("no supported value")
}

func constantOfShape(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	value := &array{typ: onnx.Float, f: []float64{0}}
	if a := c.attrs["value"]; a != nil && a.T != nil {
		var err error
		if value, err = load(a.T, ""); err != nil {
			return nil, err
		}
	}
	y, err := newArray(value.typ, asInts(c.in[0].i)...)
	if err != nil {
		return nil, err
	}
	for i := range y.size() {
		y.set(i, value, 0)
	}
	return []*array{y}, nil
}

func asInts(v []int64) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

func shapeOf(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	rank := int64(len(c.in[0].shape))
	clamp := func(v int64) int64 {
		if v < 0 {
			v += rank
		}
		return min(max(v, 0), rank)
	}
	from, to := clamp(c.int("start", 0)), clamp(c.int("end", rank))
	y := &array{typ: onnx.Int64, i: []int64{}}
	for i := from; i < to; i++ {
		y.i = append(y.i, int64(c.in[0].shape[i]))
	}
	y.shape = []int{len(y.i)}
	return []*array{y}, nil
}

func reshape(c *call) ([]*array, error) {
	if err := c.need(2); err != nil {
		return nil, err
	}
	x, shape := c.in[0], asInts(c.in[1].i)
	infer, known := -1, 1
	for i, d := range shape {
		switch {
		case d == -1 && infer < 0:
			infer = i
			continue
		case d == 0 && c.int("allowzero", 0) == 0 && i < len(x.shape):
			shape[i] = x.shape[i]
		case d < 0:
			return nil, fmt.Errorf("shape %v", shape)
		}
		known *= shape[i]
	}
	if infer >= 0 && known > 0 {
		shape[infer] = x.size() / known
		known *= shape[infer]
	}
	if known != x.size() {
		return nil, fmt.Errorf("%v cannot become %v", x.shape, shape)
	}
	return []*array{x.withShape(shape)}, nil
}

func transpose(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	x := c.in[0]
	perm := asInts(c.ints(1, "perm"))
	if len(perm) == 0 {
		for i := range x.shape {
			perm = append(perm, len(x.shape)-1-i)
		}
	}
	own := strides(x.shape)
	shape, moved := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		shape[i], moved[i] = x.shape[p], own[p]
	}
	return one(pick(x, shape, 0, moved))
}

// pick reads an array through other strides.
func pick(x *array, shape []int, from int, through []int) (*array, error) {
	y, err := newArray(x.typ, shape...)
	if err != nil {
		return nil, err
	}
	walk(shape, func(at int, o []int) { y.set(at, x, from+o[0]) }, through)
	return y, nil
}

func concat(c *call) ([]*array, error) {
	if err := c.need(max(1, len(c.in))); err != nil {
		return nil, err
	}
	axis, err := axisOf(c.int("axis", 0), len(c.in[0].shape))
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(c.in[0].shape)
	shape[axis] = 0
	for _, x := range c.in {
		if len(x.shape) != len(shape) || x.typ != c.in[0].typ {
			return nil, fmt.Errorf("shapes %v and %v", c.in[0].shape, x.shape)
		}
		for d := range shape {
			if d != axis && x.shape[d] != shape[d] {
				return nil, fmt.Errorf("shapes %v and %v", c.in[0].shape, x.shape)
			}
		}
		shape[axis] += x.shape[axis]
	}
	y, err := newArray(c.in[0].typ, shape...)
	if err != nil {
		return nil, err
	}
	own, from := strides(shape), 0
	for _, x := range c.in {
		walk(x.shape, func(at int, o []int) { y.set(from+o[0], x, at) }, own)
		from += x.shape[axis] * own[axis]
	}
	return []*array{y}, nil
}

func split(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	x := c.in[0]
	axis, err := axisOf(c.int("axis", 0), len(x.shape))
	if err != nil {
		return nil, err
	}
	sizes := asInts(c.ints(1, "split"))
	if len(sizes) == 0 {
		piece := (x.shape[axis] + c.outs - 1) / c.outs
		for left := x.shape[axis]; len(sizes) < c.outs; left -= piece {
			sizes = append(sizes, min(max(left, 0), piece))
		}
	}
	var out []*array
	from, own := 0, strides(x.shape)
	for _, n := range sizes {
		if n < 0 || from+n > x.shape[axis] {
			return nil, fmt.Errorf("pieces %v of %d", sizes, x.shape[axis])
		}
		shape := slices.Clone(x.shape)
		shape[axis] = n
		y, err := pick(x, shape, from*own[axis], own)
		if err != nil {
			return nil, err
		}
		out = append(out, y)
		from += n
	}
	if from != x.shape[axis] {
		return nil, fmt.Errorf("pieces %v of %d", sizes, x.shape[axis])
	}
	return out, nil
}

func slice(c *call) ([]*array, error) {
	if err := c.need(3); err != nil {
		return nil, err
	}
	x, starts, ends := c.in[0], c.in[1].i, c.in[2].i
	axes, steps := c.ints(3, "axes"), c.ints(4, "steps")
	shape, through, from := slices.Clone(x.shape), strides(x.shape), 0
	own := strides(x.shape)
	for i := range starts {
		a, step := int64(i), int64(1)
		if axes != nil {
			a = axes[i]
		}
		if steps != nil {
			step = steps[i]
		}
		axis, err := axisOf(a, len(x.shape))
		if err != nil {
			return nil, err
		}
		begin, count, err := sliceRange(starts[i], ends[i], step, int64(x.shape[axis]))
		if err != nil {
			return nil, err
		}
		shape[axis], through[axis] = count, own[axis]*int(step)
		from += begin * own[axis]
	}
	return one(pick(x, shape, from, through))
}

// sliceRange resolves start:end:step of a dimension as Python does.
func sliceRange(start, end, step, n int64) (begin, count int, err error) {
	if step == 0 || step == math.MinInt64 {
		return 0, 0, fmt.Errorf("step %d", step)
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	resolve := func(v int64) int64 {
		if v < 0 {
			v = max(v, -n-1) + n
		}
		return min(max(v, low), high)
	}
	start, end = resolve(start), resolve(end)
	if step > 0 && end > start {
		return int(start), int((end - start + step - 1) / step), nil
	}
	if step < 0 && start > end {
		return int(start), int((start - end - step - 1) / -step), nil
	}
	return 0, 0, nil
}

func unsqueeze(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	x, axes := c.in[0], c.ints(1, "axes")
	rank := len(x.shape) + len(axes)
	added := make([]bool, rank)
	for _, a := range axes {
		i, err := axisOf(a, rank)
		if err != nil || added[i] {
			return nil, fmt.Errorf("axes %v of rank %d", axes, rank)
		}
		added[i] = true
	}
	shape, next := make([]int, rank), 0
	for i := range shape {
		if shape[i] = 1; !added[i] {
			shape[i] = x.shape[next]
			next++
		}
	}
	return []*array{x.withShape(shape)}, nil
}

func squeeze(c *call) ([]*array, error) {
	if err := c.need(1); err != nil {
		return nil, err
	}
	x := c.in[0]
	drop := make([]bool, len(x.shape))
	axes := c.ints(1, "axes")
	for i, d := range x.shape {
		drop[i] = axes == nil && d == 1
	}
	for _, a := range axes {
		i, err := axisOf(a, len(x.shape))
		if err != nil || x.shape[i] != 1 {
			return nil, fmt.Errorf("axis %d of shape %v", a, x.shape)
		}
		drop[i] = true
	}
	shape := []int{}
	for i, d := range x.shape {
		if !drop[i] {
			shape = append(shape, d)
		}
	}
	return []*array{x.withShape(shape)}, nil
}

func expand(c *call) ([]*array, error) {
	if err := c.need(2); err != nil {
		return nil, err
	}
	x := c.in[0]
	shape, err := broadcast(x.shape, asInts(c.in[1].i))
	if err != nil {
		return nil, err
	}
	return one(pick(x, shape, 0, spread(x.shape, shape)))
}

func gather(c *call) ([]*array, error) {
	if err := c.need(2); err != nil {
		return nil, err
	}
	x, ids := c.in[0], c.in[1]
	axis, err := axisOf(c.int("axis", 0), len(x.shape))
	if err != nil {
		return nil, err
	}
	shape := slices.Concat(x.shape[:axis], ids.shape, x.shape[axis+1:])
	y, err := newArray(x.typ, shape...)
	if err != nil {
		return nil, err
	}
	outer, inner, n := product(x.shape[:axis]), product(x.shape[axis+1:]), x.shape[axis]
	for o := range outer {
		for j, id := range ids.i {
			at, err := axisOf(id, n)
			if err != nil {
				return nil, fmt.Errorf("index %d of %d", id, n)
			}
			for k := range inner {
				y.set((o*len(ids.i)+j)*inner+k, x, (o*n+at)*inner+k)
			}
		}
	}
	return []*array{y}, nil
}

func gatherND(c *call) ([]*array, error) {
	if err := c.need(2); err != nil {
		return nil, err
	}
	x, ids, batch := c.in[0], c.in[1], int(c.int("batch_dims", 0))
	last := len(ids.shape) - 1
	if last < 0 || batch < 0 || batch > last || batch+ids.shape[last] > len(x.shape) ||
		!slices.Equal(x.shape[:batch], ids.shape[:batch]) {
		return nil, fmt.Errorf("indices %v into %v with %d batch dimensions", ids.shape, x.shape, batch)
	}
	depth := ids.shape[last]
	y, err := newArray(x.typ, slices.Concat(ids.shape[:last], x.shape[batch+depth:])...)
	if err != nil {
		return nil, err
	}
	own, inner := strides(x.shape), product(x.shape[batch+depth:])
	perBatch, lookups := product(x.shape[batch:]), product(ids.shape[batch:last])
	for row := range product(ids.shape[:last]) {
		from := row / max(lookups, 1) * perBatch
		for d := range depth {
			at, err := axisOf(ids.i[row*depth+d], x.shape[batch+d])
			if err != nil {
				return nil, fmt.Errorf("index %d of %d", ids.i[row*depth+d], x.shape[batch+d])
			}
			from += at * own[batch+d]
		}
		for k := range inner {
			y.set(row*inner+k, x, from+k)
		}
	}
	return []*array{y}, nil
}
