package llm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"athanor/engine"
	"athanor/engine/enginetest"
	"athanor/engine/family"
	"athanor/engine/ort/orttest"
	"athanor/engine/peft"
)

// BenchmarkAdapters measures a decode step over int8 weights: with the plain
// graph, with the graph for adapters when no row has one, and with a different
// adapter of rank 16 on every linear module of each row; and the time to read
// one such adapter.
func BenchmarkAdapters(b *testing.B) {
	dir := b.TempDir()
	shape := enginetest.Llama1B()
	shape.Vocabulary, shape.Hidden, shape.Layers, shape.Heads, shape.KVHeads, shape.FFN, shape.Context = 8192, 1024, 8, 16, 4, 2816, 512
	shape.Config = nil
	if err := enginetest.WriteDecoder(dir, shape, 1); err != nil {
		b.Fatal(err)
	}
	fam, err := family.Open(os.DirFS(dir))
	if err != nil {
		b.Fatal(err)
	}
	d := fam.Decoder()
	rng := rand.New(rand.NewPCG(1, 2))
	var adapters []*engine.Adapter
	for i := range 8 {
		a := randomAdapter(rng, d, 16)
		for l := range shape.Layers {
			for _, m := range d.Linears() {
				if module := a.Modules["layers.0."+m.Name]; module != nil {
					a.Modules[fmt.Sprintf("layers.%d.%s", l, m.Name)] = module
				}
			}
		}
		to := filepath.Join(b.TempDir(), "adapter")
		if err := peft.Write(to, a); err != nil {
			b.Fatal(err)
		}
		adapters = append(adapters, &engine.Adapter{Key: fmt.Sprint(i), Dir: to})
	}
	rt := orttest.Open(b)
	cache := b.TempDir()
	for _, c := range []struct {
		name     string
		adapters bool
		rank     bool
	}{{"plain", false, false}, {"none", true, false}, {"rank16", true, true}} {
		opt := Options{Dir: dir, Quantization: family.Int8, CacheDir: cache, Context: 256, Slots: 8, Adapters: c.adapters}
		program, _, err := compile(b.Context(), rt, fam, opt.Context, opt)
		if err != nil {
			b.Fatal(err)
		}
		batch, err := newBatch(rt, program, d, opt.Context, opt)
		if err != nil {
			b.Fatal(err)
		}
		for _, rows := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/rows=%d", c.name, rows), func(b *testing.B) {
				tokens, past, places := make([]int32, rows), make([]int, rows), make([]*place, rows)
				busy := map[*place]bool{}
				for i := range rows {
					past[i] = 100
					if c.rank {
						if places[i], err = batch.adapter(adapters[i], busy); err != nil {
							b.Fatal(err)
						}
						busy[places[i]] = true
					}
				}
				for b.Loop() {
					if _, err := batch.decode(b.Context(), tokens, past, places); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		batch.close()
		if err := program.Close(); err != nil {
			b.Error(err)
		}
	}
	b.Run("read", func(b *testing.B) {
		size, err := os.Stat(filepath.Join(adapters[0].Dir, peft.WeightsFile))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(size.Size())
		table, err := newAdapterTable(rt, d, 8)
		if err != nil {
			b.Fatal(err)
		}
		defer table.close()
		for i := 0; b.Loop(); i++ {
			a := *adapters[0]
			a.Key = fmt.Sprint(i)
			if _, err := table.get(&a, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
