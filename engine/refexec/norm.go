package refexec

import (
	"fmt"
	"math"
	"slices"
)

// rmsNorm is SimplifiedLayerNormalization: x / sqrt(mean(x*x) + epsilon) * scale.
func rmsNorm(c *call) ([]*array, error) {
	if err := c.needFloats(2); err != nil {
		return nil, err
	}
	return norm(c, c.in[0], c.in[1], nil, false)
}

// layerNorm also takes the mean away and adds a bias.
func layerNorm(c *call) ([]*array, error) {
	if err := c.needFloats(2); err != nil {
		return nil, err
	}
	return norm(c, c.in[0], c.in[1], c.arg(2), true)
}

// norm normalises over the dimensions from the attribute axis on.
func norm(c *call, x, scale, bias *array, centre bool) ([]*array, error) {
	axis, err := axisOf(c.int("axis", -1), len(x.shape))
	if err != nil {
		return nil, err
	}
	n := product(x.shape[axis:])
	if scale.size() != n || (bias != nil && bias.size() != n) {
		return nil, fmt.Errorf("scale %v for %v", scale.shape, x.shape)
	}
	y, err := newArray(x.typ, x.shape...)
	if err != nil {
		return nil, err
	}
	epsilon := float64(c.float("epsilon", 1e-5))
	for from := 0; from < len(x.f); from += n {
		mean, square := 0.0, 0.0
		for _, v := range x.f[from:][:n] {
			mean += v / float64(n)
			square += v * v / float64(n)
		}
		if !centre {
			mean = 0
		}
		inv := 1 / math.Sqrt(square-mean*mean+epsilon)
		for i, v := range x.f[from:][:n] {
			y.f[from+i] = (v - mean) * inv * scale.f[i]
			if bias != nil {
				y.f[from+i] += bias.f[i]
			}
		}
	}
	return []*array{y}, nil
}

// skipRMSNorm normalises input + skip + bias; its fourth output is that sum.
func skipRMSNorm(c *call) ([]*array, error) {
	if err := c.needFloats(3); err != nil {
		return nil, err
	}
	x, skip, gamma, bias := c.in[0], c.in[1], c.in[2], c.arg(3)
	shape, err := broadcast(x.shape, skip.shape)
	if err != nil || !slices.Equal(shape, x.shape) {
		return nil, fmt.Errorf("skip %v for %v", skip.shape, x.shape)
	}
	sum, err := combine(binaryOps["Add"], x, skip)
	if err != nil {
		return nil, err
	}
	if bias != nil {
		if sum, err = combine(binaryOps["Add"], sum, bias); err != nil {
			return nil, err
		}
	}
	// The operator has no axis: it is the last dimension.
	y, err := norm(&call{attrs: c.attrs}, sum, gamma, nil, false)
	if err != nil {
		return nil, err
	}
	return []*array{y[0], nil, nil, sum}, nil
}
