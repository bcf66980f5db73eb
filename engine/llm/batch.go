package llm

import (
	"context"
	"fmt"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family"
	"athanor/engine/kv"
	"athanor/engine/tensor"
)

// batch holds the program and the memory of its steps. Only the loop uses it.
type batch struct {
	program  compute.Program
	decoder  family.Decoder
	slots    int // B, rows of the cache
	capacity int // M, positions of a row
	chunk    int // most prompt tokens of one step

	ids, rows, lengths, total compute.Buffer
	adapters                  *adapterTable  // nil when the program takes none
	choice                    compute.Buffer // int64 [slots], the adapter of each row
	logits                    compute.Buffer
	caches                    []compute.Buffer // per layer key then value, [slots, K, M, D] f32
}

// echoRows is the number of positions whose logits are computed at once when a
// prompt's own log-probabilities are wanted; it bounds the logits memory.
const echoRows = 32

// newBatch makes the memory for a program that serves rows of the given
// capacity, and as many of them as opt has slots.
func newBatch(rt compute.Runtime, p compute.Program, d family.Decoder, capacity int, opt Options) (*batch, error) {
	slots, chunk := opt.Slots, min(prefillChunk, capacity)
	b := &batch{program: p, decoder: d, slots: slots, capacity: capacity, chunk: chunk}
	logitRows := max(slots, echoRows)
	fixed := []struct {
		to    *compute.Buffer
		dtype tensor.DType
		n     int
	}{
		{&b.ids, tensor.I64, max(chunk, slots)},
		{&b.rows, tensor.I64, logitRows},
		{&b.lengths, tensor.I32, slots},
		{&b.total, tensor.I32, 1},
		{&b.choice, tensor.I64, slots},
		{&b.logits, tensor.F32, logitRows * d.Vocabulary},
	}
	for _, f := range fixed {
		buf, err := rt.NewBuffer(f.dtype, f.n)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("allocate step buffers: %w", err)
		}
		*f.to = buf
	}
	for range 2 * d.Layers {
		buf, err := rt.NewBuffer(tensor.F32, slots, d.KVHeads, capacity, d.HeadDim)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("allocate the key/value cache: %w", err)
		}
		b.caches = append(b.caches, buf)
	}
	if opt.Adapters {
		var err error
		if b.adapters, err = newAdapterTable(rt, d, slots); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// adapter is the place of an adapter, which is read when it is not in memory;
// busy are those of running rows.
func (b *batch) adapter(a *engine.Adapter, busy map[*place]bool) (*place, error) {
	if b.adapters != nil {
		return b.adapters.get(a, busy)
	}
	if a != nil {
		return nil, errNoAdapters
	}
	return nil, nil
}

// errNoAdapters is the answer of a model that was loaded without them.
var errNoAdapters = &engine.RequestError{Param: "model", Message: "the model is not loaded for adapters"}

// prefill reads tokens of one row, of which past are cached already, with an
// adapter, and returns the logits of the positions in want (relative to tokens), each [V],
// valid until the next step.
func (b *batch) prefill(ctx context.Context, row, past int, tokens []int32, want []int, adapter *place) ([][]float32, error) {
	writeInts(tensor.View[int64](b.ids.Bytes()), tokens)
	writeInts(tensor.View[int64](b.rows.Bytes()), want)
	end := past + len(tokens)
	tensor.View[int32](b.lengths.Bytes())[0] = int32(end - 1)
	tensor.View[int32](b.total.Bytes())[0] = int32(end)
	return b.run(ctx, row, len(tokens), len(want), []*place{adapter})
}

// decode appends one token to each of rows 0..len(tokens)-1, whose cached
// lengths are past, and returns the next logits of each row.
func (b *batch) decode(ctx context.Context, tokens []int32, past []int, adapters []*place) ([][]float32, error) {
	n := len(tokens)
	writeInts(tensor.View[int64](b.ids.Bytes()), tokens)
	clear(tensor.View[int64](b.rows.Bytes())[:n])
	writeInts(tensor.View[int32](b.lengths.Bytes()), past)
	longest := 0
	for _, p := range past {
		longest = max(longest, p+1)
	}
	tensor.View[int32](b.total.Bytes())[0] = int32(longest)
	return b.run(ctx, 0, 1, 1, adapters)
}

// run binds B=len(adapters) rows starting at first, S=positions, R=wanted and
// runs one step.
func (b *batch) run(ctx context.Context, first, positions, wanted int, adapters []*place) ([][]float32, error) {
	d, rows := b.decoder, len(adapters)
	var views []compute.Buffer
	defer func() { closeAll(views) }()
	view := func(buf compute.Buffer, offset int, shape ...int) (compute.Buffer, error) {
		v, err := buf.View(offset, shape...)
		if err == nil {
			views = append(views, v)
		}
		return v, err
	}
	ids, err1 := view(b.ids, 0, rows, positions)
	sel, err2 := view(b.rows, 0, rows, wanted, 1)
	lengths, err3 := view(b.lengths, 0, rows)
	logits, err4 := view(b.logits, 0, rows, wanted, d.Vocabulary)
	if err := firstError(err1, err2, err3, err4); err != nil {
		return nil, fmt.Errorf("bind a step of %d x %d: %w", rows, positions, err)
	}
	in := []compute.Buffer{ids, sel, lengths, b.total}
	out := []compute.Buffer{logits}
	stride := d.KVHeads * b.capacity * d.HeadDim
	for _, cache := range b.caches {
		v, err := view(cache, first*stride, rows, d.KVHeads, b.capacity, d.HeadDim)
		if err != nil {
			return nil, fmt.Errorf("bind the cache of rows %d to %d: %w", first, first+rows-1, err)
		}
		in, out = append(in, v), append(out, v)
	}
	if b.adapters != nil {
		any := false
		for i, p := range adapters {
			tensor.View[int64](b.choice.Bytes())[i] = int64(p.number())
			any = any || p != nil
		}
		choice, err := view(b.choice, 0, rows)
		if err != nil {
			return nil, fmt.Errorf("bind the adapters of %d rows: %w", rows, err)
		}
		in = append(append(in, choice), b.adapters.inputs(any)...)
	}
	if err := b.program.Run(ctx, in, out); err != nil {
		return nil, fmt.Errorf("run a step of %d x %d: %w", rows, positions, err)
	}
	flat := tensor.View[float32](b.logits.Bytes())
	result := make([][]float32, rows*wanted)
	for i := range result {
		result[i] = flat[i*d.Vocabulary : (i+1)*d.Vocabulary]
	}
	return result, nil
}

// move copies the first used positions of one row to another, after which the
// old row is free.
func (b *batch) move(m kv.Move, used int) {
	d := b.decoder
	head := b.capacity * d.HeadDim
	for _, cache := range b.caches {
		mem := tensor.View[float32](cache.Bytes())
		for k := range d.KVHeads {
			from := (m.From*d.KVHeads + k) * head
			to := (m.To*d.KVHeads + k) * head
			copy(mem[to:to+used*d.HeadDim], mem[from:from+used*d.HeadDim])
		}
	}
}

func (b *batch) close() {
	closeAll([]compute.Buffer{b.ids, b.rows, b.lengths, b.total, b.choice, b.logits})
	closeAll(b.caches)
	if b.adapters != nil {
		b.adapters.close()
	}
}

func closeAll(buffers []compute.Buffer) {
	for _, v := range buffers {
		if v != nil {
			v.Close()
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func writeInts[D int32 | int64, S int | int32](dst []D, src []S) {
	for i, v := range src {
		dst[i] = D(v)
	}
}
