package dataset_test

import (
	"bytes"
	"fmt"
	"testing"

	"athanor/server/files/dataset"
)

// corpus makes lines of conversations of a common size.
func corpus(lines int) []byte {
	var b bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&b, `{"messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Question %d: what is the capital of the country with the number %d, and why was it chosen?"}, {"role": "assistant", "content": "It is the city number %d.\nIt was chosen because \"reasons\" of trade, of water and of defence came together there in the year %d."}]}`+"\n", i, i*7, i*13, i%2000)
	}
	return b.Bytes()
}

func BenchmarkCheck(b *testing.B) {
	data := corpus(20000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := dataset.Check(b.Context(), bytes.NewReader(data), dataset.Options{Purpose: dataset.FineTune, Type: "jsonl"})
		if err != nil || !r.Valid() {
			b.Fatal(err, r)
		}
	}
}
