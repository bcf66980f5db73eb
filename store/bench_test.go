package store_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"athanor/store"
)

// BenchmarkDB_Update measures durable updates of one record each, by the number of
// goroutines that write.
func BenchmarkDB_Update(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			db, err := store.Open(filepath.Join(b.TempDir(), "athanor.db"), store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			before := db.Stats()
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						id := fmt.Sprint(n)
						v := &thing{Name: id, Group: "g", Tags: []string{"t"}}
						if err := db.Update(b.Context(), func(tx *store.Tx) error { return things.Insert(tx, id, v) }); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			after := db.Stats()
			b.ReportMetric(float64(after.Updates-before.Updates)/b.Elapsed().Seconds(), "updates/s")
			b.ReportMetric(float64(after.Commits-before.Commits)/b.Elapsed().Seconds(), "fsyncs/s")
		})
	}
}

// BenchmarkTable_Get measures one indexed read, the cost of finding a key.
func BenchmarkTable_Lookup(b *testing.B) {
	db, err := store.Open(filepath.Join(b.TempDir(), "athanor.db"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	mustUpdate(b, db, func(tx *store.Tx) error {
		for i := range 10000 {
			if err := things.Insert(tx, fmt.Sprint(i), &thing{Name: fmt.Sprint("n", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	b.ReportAllocs()
	for b.Loop() {
		err := db.View(func(tx *store.Tx) error {
			_, err := things.Lookup(tx, "name", []byte("n5000"))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
