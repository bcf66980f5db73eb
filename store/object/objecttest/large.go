package objecttest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"athanor/store/object"
)

const (
	largeSize  = 20 << 20
	heapBound  = 14 << 20 // a few parts of the least size, well below largeSize
	heapSample = 4 << 20  // bytes between two looks at the heap
)

// testLarge streams a blob in and out without holding it.
func testLarge(t *testing.T, s object.Store) {
	if testing.Short() {
		t.Skip("skipped by -short: moves 80 MiB")
	}
	for name, size := range map[string]int64{"known": largeSize, "unknown": -1} {
		base := heap()
		in := &meter{r: io.LimitReader(noise(), largeSize), hash: sha256.New()}
		info, err := s.Put(t.Context(), name, in, size)
		if err != nil || info.Size != largeSize || info.SHA256 != hex.EncodeToString(in.hash.Sum(nil)) {
			t.Fatalf("Put of 20 MiB, size %s: %+v, %v", name, info, err)
		}
		r, info, err := s.Get(t.Context(), name, 0, -1)
		if err != nil || info.Size != largeSize {
			t.Fatalf("Get of 20 MiB: %+v, %v", info, err)
		}
		out := &meter{r: r, hash: sha256.New()}
		_, err = io.Copy(io.Discard, out)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatalf("read 20 MiB: %v", err)
		}
		if string(in.hash.Sum(nil)) != string(out.hash.Sum(nil)) {
			t.Errorf("size %s: what came out is not what went in", name)
		}
		if peak := max(in.peak, out.peak); peak > base+heapBound {
			t.Errorf("size %s: the heap grew by %d MiB for a blob of 20 MiB", name, (peak-base)>>20)
		}
	}
	// A range across the border of two parts.
	const at, n = 5<<20 - 3, 7
	want := make([]byte, at+n)
	if _, err := io.ReadFull(noise(), want); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "unknown", at, n); got != string(want[at:]) {
		t.Errorf("a range across parts is %x, want %x", got, want[at:])
	}
}

// noise is an endless reader of the same pseudo-random bytes every time.
func noise() io.Reader { return rand.NewChaCha8([32]byte{}) }

// meter hashes what passes and notes the largest heap.
type meter struct {
	r    io.Reader
	hash hash.Hash
	next int
	peak uint64
}

func (m *meter) Read(p []byte) (int, error) {
	if m.next -= len(p); m.next <= 0 {
		m.next = heapSample
		m.peak = max(m.peak, heap())
	}
	n, err := m.r.Read(p)
	m.hash.Write(p[:n])
	return n, err
}

// heap is what is in use, without garbage.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
