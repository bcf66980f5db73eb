package data_test

import (
	"os"
	"path/filepath"
	"testing"

	"athanor/engine/demo"
	"athanor/engine/train/data"
)

// BenchmarkLine is one conversation of two messages.
func BenchmarkLine(b *testing.B) {
	e, err := data.NewEncoder(demo.FS(), data.EncodeOptions{})
	if err != nil {
		b.Fatal(err)
	}
	line := []byte(`{"messages":[{"role":"user","content":"What is the capital of the country, and why was it chosen?"},{"role":"assistant","content":"It is the city by the river, because trade, water and defence came together there long ago."}]}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Line(line); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTokenize is a whole file, to disk, on all processors.
func BenchmarkTokenize(b *testing.B) {
	s := spec(b, lines(5000), "jsonl")
	info, err := os.Stat(s.File.Path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		set, err := data.Tokenize(b.Context(), s, filepath.Join(dir, "set"), nil)
		if err == nil {
			err = set.Close()
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, "set"))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSampler makes the batches of an epoch.
func BenchmarkSampler(b *testing.B) {
	set := mustTokenize(b, spec(b, lines(5000), "jsonl"), filepath.Join(b.TempDir(), "set"))
	s := mustSampler(b, set, data.Options{Packing: true, RowLength: 512, BatchRows: 4, Shuffle: true})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.Batch(i/s.Batches(), i%s.Batches()); err != nil {
			b.Fatal(err)
		}
	}
}
