package refexec

import (
	"errors"
	"fmt"
	"slices"
)

// gatherElements picks along one axis: the result is shaped like the indices.
func gatherElements(c *call) ([]*array, error) {
	if err := c.need(2); err != nil {
		return nil, err
	}
	x, ids := c.in[0], c.in[1]
	y, err := newArray(x.typ, ids.shape...)
	if err != nil {
		return nil, err
	}
	err = elementPlaces(c, x, ids, func(at, place int) { y.set(at, x, place) })
	return []*array{y}, err
}

// scatterElements adds updates to a copy of the data at the places that
// gatherElements would pick.
func scatterElements(c *call) ([]*array, error) {
	y, updates, err := scatterTarget(c)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(updates.shape, c.in[1].shape) {
		return nil, fmt.Errorf("updates %v for indices %v", updates.shape, c.in[1].shape)
	}
	err = elementPlaces(c, y, c.in[1], func(at, place int) { y.f[place] += updates.f[at] })
	return []*array{y}, err
}

// elementPlaces calls fn with every place of the indices and the element of x
// that it names.
func elementPlaces(c *call, x, ids *array, fn func(at, place int)) error {
	axis, err := axisOf(c.int("axis", 0), len(x.shape))
	if err != nil {
		return err
	}
	if len(ids.shape) != len(x.shape) {
		return fmt.Errorf("indices %v for data %v", ids.shape, x.shape)
	}
	for d, n := range ids.shape {
		if d != axis && n > x.shape[d] {
			return fmt.Errorf("indices %v for data %v", ids.shape, x.shape)
		}
	}
	others := strides(x.shape)
	step := others[axis]
	others[axis] = 0
	walk(ids.shape, func(at int, o []int) {
		id, wrong := axisOf(ids.i[at], x.shape[axis])
		if wrong != nil {
			err = fmt.Errorf("index %d of %d", ids.i[at], x.shape[axis])
			return
		}
		fn(at, o[0]+id*step)
	}, others)
	return err
}

// scatterND adds slices of updates to a copy of the data; the last dimension
// of the indices is a place in the leading dimensions of the data.
func scatterND(c *call) ([]*array, error) {
	y, updates, err := scatterTarget(c)
	if err != nil {
		return nil, err
	}
	ids := c.in[1]
	last := len(ids.shape) - 1
	if last < 0 || ids.shape[last] > len(y.shape) {
		return nil, fmt.Errorf("indices %v for data %v", ids.shape, y.shape)
	}
	depth := ids.shape[last]
	if want := slices.Concat(ids.shape[:last], y.shape[depth:]); !slices.Equal(updates.shape, want) {
		return nil, fmt.Errorf("updates %v, want %v", updates.shape, want)
	}
	own, inner := strides(y.shape), product(y.shape[depth:])
	for row := range product(ids.shape[:last]) {
		to := 0
		for d := range depth {
			id, err := axisOf(ids.i[row*depth+d], y.shape[d])
			if err != nil {
				return nil, fmt.Errorf("index %d of %d", ids.i[row*depth+d], y.shape[d])
			}
			to += id * own[d]
		}
		for k := range inner {
			y.f[to+k] += updates.f[row*inner+k]
		}
	}
	return []*array{y}, nil
}

// scatterTarget is a copy of the data, and the updates of the same type.
func scatterTarget(c *call) (y, updates *array, err error) {
	if err := c.need(3); err != nil {
		return nil, nil, err
	}
	if a := c.attrs["reduction"]; a == nil || string(a.S) != "add" {
		return nil, nil, errors.New("only the reduction add is supported")
	}
	x, updates := c.in[0], c.in[2]
	if !isFloat(x.typ) || updates.typ != x.typ {
		return nil, nil, fmt.Errorf("data types %d and %d", x.typ, updates.typ)
	}
	if y, err = newArray(x.typ, x.shape...); err != nil {
		return nil, nil, err
	}
	copy(y.f, x.f)
	return y, updates, nil
}
