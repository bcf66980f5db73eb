package refexec

import (
	"errors"
	"fmt"
	"math"
)

// attention is one use of GroupQueryAttention. Letters as in package engine: B
// rows, S new positions, M room in the cache, N query heads, K key/value heads,
// D head size.
type attention struct {
	B, S, M, N, K, D int
	scale, softcap   float64
	window           int  // how many positions before its own a query sees, -1 for all
	rotary           bool // rotate queries and keys by position
	interleaved      bool
	last             []int64 // per row: the index of its last position
	first            bool    // a first prompt: every row starts at position 0

	query, newKey, newValue []float64 // [B, S, heads, D]
	cos, sin                *array    // [positions, D/2]
	key, value              *array    // the caches, [B, K, M, D]
}

// groupQueryAttention appends keys and values to the caches and attends
// causally (Ainslie and others 2023, arXiv:2305.13245). Row b has
// seqlens_k[b]+1 positions in all; the last S of them are new.
func groupQueryAttention(c *call) ([]*array, error) {
	a, err := newAttention(c)
	if err != nil {
		return nil, err
	}
	out, err := newArray(c.in[0].typ, a.B, a.S, a.N*a.D)
	if err != nil {
		return nil, err
	}
	for b := range a.B {
		total := int(a.last[b]) + 1
		past := total - a.S
		if a.first {
			past = 0
		}
		if past < 0 || total > a.M || total < 1 {
			return nil, fmt.Errorf("row %d: %d positions in all, %d new, room for %d", b, total, a.S, a.M)
		}
		// A first prompt may be padded on the right: those positions are not
		// stored, and their results are left zero.
		steps := min(a.S, total-past)
		for s := range steps {
			if err := a.append(b, s, past+s); err != nil {
				return nil, err
			}
		}
		for s := range steps {
			for h := range a.N {
				at := ((b*a.S+s)*a.N + h) * a.D
				if err := a.attend(out.f[at:][:a.D], b, s, h, past+s); err != nil {
					return nil, err
				}
			}
		}
	}
	return []*array{out, a.key, a.value}, nil
}

func newAttention(c *call) (*attention, error) {
	for _, name := range []string{"smooth_softmax", "qk_output", "k_quant_type", "v_quant_type"} {
		if at := c.attrs[name]; at != nil && at.I > 0 {
			return nil, fmt.Errorf("attribute %s is not supported", name)
		}
	}
	for i := 9; i < len(c.in); i++ {
		if c.in[i] != nil {
			return nil, fmt.Errorf("input %d is not supported", i)
		}
	}
	q, lens, total := c.arg(0), c.arg(5), c.arg(6)
	if q == nil || lens == nil || total == nil || len(q.shape) != 3 || total.size() != 1 {
		return nil, errors.New("query, seqlens_k and total_sequence_length are needed")
	}
	a := &attention{
		B: q.shape[0], S: q.shape[1], N: int(c.int("num_heads", 0)), K: int(c.int("kv_num_heads", 0)),
		softcap: float64(c.float("softcap", 0)), window: int(c.int("local_window_size", -1)),
		rotary: c.int("do_rotary", 0) != 0, interleaved: c.int("rotary_interleaved", 0) != 0,
		last: lens.i,
	}
	if a.N <= 0 || a.K <= 0 || a.N%a.K != 0 || len(a.last) != a.B {
		return nil, fmt.Errorf("%d heads over %d, %d lengths for %d rows", a.N, a.K, len(a.last), a.B)
	}
	a.first = int(total.i[0]) == a.S
	if err := a.split(c); err != nil {
		return nil, err
	}
	if a.scale = float64(c.float("scale", 0)); a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(a.D))
	}
	if a.cos, a.sin = c.arg(7), c.arg(8); a.rotary && (a.cos == nil || a.sin == nil) {
		return nil, errors.New("do_rotary without cos_cache and sin_cache")
	}
	var err error
	if a.key, err = a.cache(c.arg(3), int(total.i[0])); err != nil {
		return nil, err
	}
	a.value, err = a.cache(c.arg(4), int(total.i[0]))
	return a, err
}

// split finds queries, keys and values, which may share one input.
func (a *attention) split(c *call) error {
	q, k, v := c.in[0], c.arg(1), c.arg(2)
	if (k == nil) != (v == nil) {
		return errors.New("key without value")
	}
	if k != nil {
		a.D = q.shape[2] / a.N
		if q.shape[2] != a.N*a.D || k.size() != a.B*a.S*a.K*a.D || v.size() != k.size() {
			return fmt.Errorf("query %v, key %v, value %v", q.shape, k.shape, v.shape)
		}
		a.query, a.newKey, a.newValue = q.f, k.f, v.f
		return nil
	}
	heads := a.N + 2*a.K
	a.D = q.shape[2] / heads
	if q.shape[2] != heads*a.D {
		return fmt.Errorf("packed query %v for %d and %d heads", q.shape, a.N, a.K)
	}
	for row := range a.B * a.S {
		line := q.f[row*q.shape[2]:][:q.shape[2]]
		a.query = append(a.query, line[:a.N*a.D]...)
		a.newKey = append(a.newKey, line[a.N*a.D:][:a.K*a.D]...)
		a.newValue = append(a.newValue, line[(a.N+a.K)*a.D:]...)
	}
	return nil
}

// cache copies a cache, with at least the room that is asked for.
func (a *attention) cache(past *array, total int) (*array, error) {
	had := 0
	if past != nil {
		if len(past.shape) != 4 || past.shape[0] != a.B || past.shape[1] != a.K || past.shape[3] != a.D {
			return nil, fmt.Errorf("cache %v for %d rows, %d heads of %d", past.shape, a.B, a.K, a.D)
		}
		had = past.shape[2]
	}
	a.M = max(had, total)
	next, err := newArray(1, a.B, a.K, a.M, a.D)
	if err != nil || past == nil {
		return next, err
	}
	for head := range a.B * a.K {
		copy(next.f[head*a.M*a.D:], past.f[head*had*a.D:][:had*a.D])
	}
	return next, nil
}

// append stores the key and value of new position s of row b at position pos.
func (a *attention) append(b, s, pos int) error {
	for h := range a.K {
		from := ((b*a.S+s)*a.K + h) * a.D
		to := ((b*a.K+h)*a.M + pos) * a.D
		copy(a.value.f[to:][:a.D], a.newValue[from:][:a.D])
		k, err := a.rotate(a.newKey[from:][:a.D], pos)
		if err != nil {
			return err
		}
		copy(a.key.f[to:][:a.D], k)
	}
	return nil
}

// attend computes one head of one new position.
func (a *attention) attend(out []float64, b, s, h, pos int) error {
	q, err := a.rotate(a.query[((b*a.S+s)*a.N+h)*a.D:][:a.D], pos)
	if err != nil {
		return err
	}
	from := 0
	if a.window >= 0 {
		from = max(0, pos-a.window+1)
	}
	base := (b*a.K + h/(a.N/a.K)) * a.M * a.D
	weights := make([]float64, pos+1-from)
	for j := range weights {
		k, dot := a.key.f[base+(from+j)*a.D:][:a.D], 0.0
		for d := range a.D {
			dot += q[d] * k[d]
		}
		weights[j] = dot * a.scale
		if a.softcap > 0 {
			weights[j] = a.softcap * math.Tanh(weights[j]/a.softcap)
		}
	}
	normalise(weights)
	for d := range a.D {
		sum := 0.0
		for j, w := range weights {
			sum += w * a.value.f[base+(from+j)*a.D+d]
		}
		out[d] = sum
	}
	return nil
}

// rotate applies the rotary embedding (Su and others 2021, arXiv:2104.09864):
// pairs are the halves of the head, or its neighbours when interleaved.
func (a *attention) rotate(x []float64, pos int) ([]float64, error) {
	if !a.rotary {
		return x, nil
	}
	half := a.cos.shape[len(a.cos.shape)-1]
	if pos >= a.cos.shape[0] || 2*half > a.D || a.sin.size() != a.cos.size() {
		return nil, fmt.Errorf("position %d, rotary tables %v", pos, a.cos.shape)
	}
	y := append([]float64{}, x...)
	for i := range half {
		first, second := i, i+half
		if a.interleaved {
			first, second = 2*i, 2*i+1
		}
		cos, sin := a.cos.f[pos*half+i], a.sin.f[pos*half+i]
		u, v := x[first], x[second]
		y[first] = u*cos - v*sin
		y[second] = v*cos + u*sin
	}
	return y, nil
}
