package llm

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family"
	"athanor/engine/peft"
	"athanor/engine/tensor"
)

// adapterBudget is the memory, in bytes, that adapters at rest may take. Those
// of the rows that are running have their place in any case.
const adapterBudget = 1 << 30

// maxAdapters is the most adapters in memory at once.
const maxAdapters = 64

// adapterTable keeps adapters in the memory that the graph reads: for each
// linear module all adapters one behind the other, padded to the largest rank.
// The first is zero and stands for none. Only the loop uses it.
type adapterTable struct {
	rt      compute.Runtime
	decoder family.Decoder
	modules []adapterModule // in the order of the graph's inputs
	rows    int             // most adapters in use at once

	places  []*place
	size    int              // P, adapters that there is memory for
	rank    int              // Q
	buffers []compute.Buffer // a [P, In, Q] and b [P, Q, Out] of each module
	uses    int64            // counts, for the order of places

	zeros compute.Buffer
	none  []compute.Buffer // the buffers of a step without adapters: P = Q = 1, views of zeros
}

// adapterModule is a linear module of a layer.
type adapterModule struct {
	name    string // canonical
	in, out int
}

// place is where an adapter lies; nil stands for none.
type place struct {
	at   int // its number in the graph, from 1; changes when the memory does
	key  string
	rank int
	used int64 // the larger, the later it was asked for
}

func (p *place) number() int {
	if p == nil {
		return 0
	}
	return p.at
}

func newAdapterTable(rt compute.Runtime, d family.Decoder, rows int) (*adapterTable, error) {
	t := &adapterTable{rt: rt, decoder: d, rows: rows, size: 1, rank: 1}
	widest := 1
	for i := range d.Layers {
		for _, l := range d.Linears() {
			t.modules = append(t.modules, adapterModule{fmt.Sprintf("layers.%d.%s", i, l.Name), l.In, l.Out})
			widest = max(widest, l.In, l.Out)
		}
	}
	var err error
	if t.zeros, err = rt.NewBuffer(tensor.F32, widest); err != nil {
		return nil, fmt.Errorf("allocate adapters: %w", err)
	}
	for _, m := range t.modules {
		a, err1 := t.zeros.View(0, 1, m.in, 1)
		b, err2 := t.zeros.View(0, 1, 1, m.out)
		if err := errors.Join(err1, err2); err != nil {
			t.close()
			return nil, fmt.Errorf("allocate adapters: %w", err)
		}
		t.none = append(t.none, a, b)
	}
	return t, nil
}

// inputs are the buffers of a step; used says whether any row has an adapter.
func (t *adapterTable) inputs(used bool) []compute.Buffer {
	if used {
		return t.buffers
	}
	return t.none
}

// get is the place of an adapter, which is read from its folder when it is not
// in memory; busy are those that must stay. An adapter that cannot be used is a
// *engine.RequestError.
func (t *adapterTable) get(a *engine.Adapter, busy map[*place]bool) (*place, error) {
	if a == nil {
		return nil, nil
	}
	t.uses++
	for _, p := range t.places {
		if p.key == a.Key {
			p.used = t.uses
			return p, nil
		}
	}
	read, err := peft.Read(a.Dir)
	if err == nil {
		err = read.CheckBase(t.decoder.Linear)
	}
	if err != nil {
		return nil, &engine.RequestError{Param: "model", Message: "the adapter cannot be used: " + adapterReason(err)}
	}
	p := &place{key: a.Key, rank: read.MaxRank(), used: t.uses}
	if err := t.room(p, busy); err != nil {
		return nil, fmt.Errorf("make room for an adapter: %w", err)
	}
	t.fill(p, read)
	return p, nil
}

// adapterReason leaves out where the server keeps its files.
func adapterReason(err error) string {
	var path *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its files are missing"
	case errors.As(err, &path):
		return "its files cannot be read: " + path.Err.Error()
	}
	return err.Error()
}

// room gives p a place. While there are too many, those that nobody has asked
// for longest go. The memory grows in doubling steps, changes with the largest
// rank, and shrinks when that has halved.
func (t *adapterTable) room(p *place, busy map[*place]bool) error {
	limit := t.limit(p.rank)
	kept := slices.Clone(t.places)
	for len(kept) >= limit {
		oldest := -1
		for i, k := range kept {
			if !busy[k] && (oldest < 0 || k.used < kept[oldest].used) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		kept = slices.Delete(kept, oldest, oldest+1)
	}
	rank := p.rank
	for _, k := range kept {
		rank = max(rank, k.rank)
	}
	size := len(kept) + 2 // with none and the new one
	if size > t.size || rank > t.rank || 2*rank <= t.rank {
		if size > t.size {
			size = max(size, min(2*t.size, limit+1))
		}
		if err := t.resize(kept, size, rank); err != nil {
			return err
		}
	}
	p.at = 1
	for slices.ContainsFunc(kept, func(k *place) bool { return k.at == p.at }) {
		p.at++
	}
	t.places = append(kept, p)
	return nil
}

// limit is how many adapters are kept when the largest has the given rank.
func (t *adapterTable) limit(rank int) int {
	for _, p := range t.places {
		rank = max(rank, p.rank)
	}
	one := int64(0)
	for _, m := range t.modules {
		one += 4 * int64(rank) * int64(m.in+m.out)
	}
	return keep(one, t.rows)
}

// keep is how many adapters of so many bytes are kept for so many rows.
func keep(bytes int64, rows int) int {
	return max(rows, int(min(adapterBudget/max(bytes, 1), maxAdapters)))
}

// AdapterBytes estimates the memory that a model with rows sequences at a time
// takes for adapters of which there are count, the largest of so many bytes in
// float32.
func AdapterBytes(count int, largest int64, rows int) int64 {
	return int64(min(count, keep(largest, rows))+1) * largest
}

// resize moves the kept adapters to memory of another size. On an error nothing
// has changed.
func (t *adapterTable) resize(kept []*place, size, rank int) error {
	var next []compute.Buffer
	for _, m := range t.modules {
		for _, shape := range [][]int{{size, m.in, rank}, {size, rank, m.out}} {
			b, err := t.rt.NewBuffer(tensor.F32, shape...)
			if err != nil {
				closeAll(next)
				return err
			}
			next = append(next, b)
		}
	}
	keep := min(rank, t.rank)
	for i, m := range t.modules {
		for j, p := range kept {
			to, from := floats(next[2*i])[(j+1)*m.in*rank:], floats(t.buffers[2*i])[p.at*m.in*t.rank:]
			for k := range m.in {
				copy(to[k*rank:k*rank+keep], from[k*t.rank:])
			}
			copy(floats(next[2*i+1])[(j+1)*rank*m.out:][:keep*m.out], floats(t.buffers[2*i+1])[p.at*t.rank*m.out:])
		}
	}
	for j, p := range kept {
		p.at = j + 1
	}
	closeAll(t.buffers)
	t.buffers, t.size, t.rank = next, size, rank
	return nil
}

func floats(b compute.Buffer) []float32 { return tensor.View[float32](b.Bytes()) }

// fill writes an adapter to its place, over what was there.
func (t *adapterTable) fill(p *place, read *peft.Adapter) {
	for i, m := range t.modules {
		a := floats(t.buffers[2*i])[p.at*m.in*t.rank:][:m.in*t.rank]
		b := floats(t.buffers[2*i+1])[p.at*t.rank*m.out:][:t.rank*m.out]
		clear(a)
		clear(b)
		change := read.Modules[m.name]
		if change == nil {
			continue
		}
		scale := float32(read.Config.Scale(change))
		for j := range m.in {
			for r := range change.Rank {
				a[j*t.rank+r] = change.A[r*m.in+j]
			}
		}
		for j := range m.out {
			for r := range change.Rank {
				b[r*m.out+j] = scale * change.B[j*change.Rank+r]
			}
		}
	}
}

func (t *adapterTable) close() {
	closeAll(t.buffers)
	closeAll(t.none)
	closeAll([]compute.Buffer{t.zeros})
}
