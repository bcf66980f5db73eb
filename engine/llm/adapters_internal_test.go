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
	"athanor/engine/peft"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
)

// TestAdapterTable asks for adapters of random ranks while random ones are in
// use, and looks after each step at the memory of all that are there.
func TestAdapterTable(t *testing.T) {
	base := t.TempDir()
	shape := enginetest.DecoderShape{Architecture: "LlamaForCausalLM", Vocabulary: 8, Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1, FFN: 24, Context: 8, DType: tensor.F32}
	if err := enginetest.WriteDecoder(base, shape, 1); err != nil {
		t.Fatal(err)
	}
	fam, err := family.Open(os.DirFS(base))
	if err != nil {
		t.Fatal(err)
	}
	d := fam.Decoder()
	const rows = 3
	table, err := newAdapterTable(refexec.New(), d, rows)
	if err != nil {
		t.Fatal(err)
	}
	defer table.close()
	rng := rand.New(rand.NewPCG(3, 4))
	type known struct {
		adapter *engine.Adapter
		read    *peft.Adapter
	}
	var all []known
	for i := range maxAdapters + 20 {
		rank := 1 + rng.IntN(6)
		if i%30 == 29 {
			rank = 40
		}
		dir := filepath.Join(t.TempDir(), "adapter")
		if err := peft.Write(dir, randomAdapter(rng, d, rank)); err != nil {
			t.Fatal(err)
		}
		read, err := peft.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, known{&engine.Adapter{Key: fmt.Sprint(i), Dir: dir}, read})
	}
	running := []*place{nil, nil, nil}
	for step := range 150 {
		k := all[rng.IntN(len(all))]
		row := rng.IntN(rows)
		running[row] = nil
		busy := map[*place]bool{}
		for _, p := range running {
			busy[p] = true
		}
		if running[row], err = table.get(k.adapter, busy); err != nil {
			t.Fatal(err)
		}
		if len(table.places) > maxAdapters || table.size > maxAdapters+1 {
			t.Fatalf("step %d: %d adapters in memory for %d", step, len(table.places), table.size)
		}
		for _, p := range running {
			if p != nil && table.places[find(table, p)] != p {
				t.Fatalf("step %d: a running adapter was evicted", step)
			}
		}
		for _, p := range table.places {
			var i int
			if _, err := fmt.Sscan(p.key, &i); err != nil {
				t.Fatal(err)
			}
			if p.at < 1 || p.at >= table.size || p.rank > table.rank {
				t.Fatalf("step %d: place %+v in %d of rank %d", step, p, table.size, table.rank)
			}
			checkPlace(t, table, p, all[i].read)
		}
	}
	if len(table.places) != maxAdapters {
		t.Errorf("%d adapters at the end", len(table.places))
	}
}

func find(t *adapterTable, p *place) int {
	for i, q := range t.places {
		if q == p {
			return i
		}
	}
	return 0
}

func randomAdapter(rng *rand.Rand, d family.Decoder, rank int) *peft.Adapter {
	a := &peft.Adapter{Config: peft.Config{Rank: rank, Alpha: float64(rank)}, Modules: map[string]*peft.Module{}}
	for _, l := range d.Linears() {
		m := &peft.Module{In: l.In, Out: l.Out, Rank: rank, Alpha: a.Config.Alpha, A: make([]float32, rank*l.In), B: make([]float32, l.Out*rank)}
		for i := range m.A {
			m.A[i] = float32(rng.NormFloat64())
		}
		for i := range m.B {
			m.B[i] = float32(rng.NormFloat64())
		}
		a.Modules["layers.0."+l.Name] = m
	}
	delete(a.Modules, "layers.0.mlp.up_proj")
	return a
}

// checkPlace compares the memory of an adapter with its files: transposed,
// zeros elsewhere, and zeros in the place of none. The scale is 1.
func checkPlace(t *testing.T, table *adapterTable, p *place, read *peft.Adapter) {
	t.Helper()
	for i, m := range table.modules {
		a, b := floats(table.buffers[2*i]), floats(table.buffers[2*i+1])
		change := read.Modules[m.name]
		for r := range table.rank {
			for j := range m.in {
				want := float32(0)
				if change != nil && r < change.Rank {
					want = change.A[r*m.in+j]
				}
				if got := a[(p.at*m.in+j)*table.rank+r]; got != want || a[j*table.rank+r] != 0 {
					t.Fatalf("adapter %s, %s: a[%d,%d] is %g, want %g", p.key, m.name, j, r, got, want)
				}
			}
			for j := range m.out {
				want := float32(0)
				if change != nil && r < change.Rank {
					want = change.B[j*change.Rank+r]
				}
				if got := b[(p.at*table.rank+r)*m.out+j]; got != want || b[r*m.out+j] != 0 {
					t.Fatalf("adapter %s, %s: b[%d,%d] is %g, want %g", p.key, m.name, r, j, got, want)
				}
			}
		}
	}
}

func TestAdapterBytes(t *testing.T) {
	const mega = 1 << 20
	for _, c := range []struct {
		count   int
		largest int64
		rows    int
		want    int64
	}{
		{1, mega, 8, 2 * mega},            // with the place of none
		{500, mega, 8, 65 * mega},         // as many as are kept
		{500, 100 * mega, 8, 1100 * mega}, // as many as the budget holds
		{500, 900 * mega, 8, 8100 * mega}, // as many as can run
	} {
		if got := AdapterBytes(c.count, c.largest, c.rows); got != c.want {
			t.Errorf("%d adapters of %d bytes for %d rows: %d, want %d", c.count, c.largest, c.rows, got, c.want)
		}
	}
}
