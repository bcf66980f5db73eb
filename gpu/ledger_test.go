package gpu_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"

	"athanor/gpu"
)

const gib = 1 << 30

func TestLedger(t *testing.T) {
	l := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 10 * gib}, gpu.Device{ID: "GPU-1", MemoryBytes: 4 * gib})
	a, err := l.Reserve("a", "cpu", 6*gib)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Reserve("b", "cpu", 4*gib)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Reserve("c", "cpu", 1)
	full := new(gpu.NoRoomError)
	if !errors.Is(err, gpu.ErrNoRoom) || !errors.As(err, &full) || full.Free() != 0 || full.Reserved != 10*gib {
		t.Errorf("one byte too many: %v", err)
	}
	if _, err := l.Reserve("c", "GPU-1", 4*gib); err != nil {
		t.Errorf("the other device: %v", err)
	}
	want := []gpu.Entry{{Owner: "c", Device: "GPU-1", Bytes: 4 * gib}, {Owner: "a", Device: "cpu", Bytes: 6 * gib}, {Owner: "b", Device: "cpu", Bytes: 4 * gib}}
	if got := l.Snapshot(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	a.Release()
	a.Release()
	if got, want := l.Reserved("cpu"), int64(4*gib); got != want {
		t.Errorf("after a double release %d are reserved, want %d", got, want)
	}
	l.SetCapacity("cpu", 5*gib)
	_, err = l.Reserve("d", "cpu", 2*gib)
	if !errors.As(err, &full) || full.Free() != gib || !strings.Contains(err.Error(), "cpu has 1.0 GiB free of 5.0 GiB, 2.0 GiB are needed") {
		t.Errorf("after the capacity shrank: %v", err)
	}
	l.SetCapacity("cpu", gib)
	if _, err = l.Reserve("d", "cpu", 0); !errors.As(err, &full) || full.Free() != 0 {
		t.Errorf("with more promised than there is: %v", err)
	}
	b.Release()
	(*gpu.Reservation)(nil).Release()
	for _, bytes := range []int64{-1, math.MinInt64} {
		if _, err := l.Reserve("e", "cpu", bytes); err == nil {
			t.Errorf("%d bytes were reserved", bytes)
		}
	}
	if _, err := l.Reserve("e", "cpu", math.MaxInt64); !errors.Is(err, gpu.ErrNoRoom) {
		t.Errorf("the largest size: %v", err)
	}
	if _, err := l.Reserve("e", "GPU-9", 1); !errors.Is(err, gpu.ErrNoDevice) {
		t.Errorf("unknown device: %v", err)
	}
}

// TestLedgerNeverOvercommits lets many owners compete.
func TestLedgerNeverOvercommits(t *testing.T) {
	l := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 100})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 200 {
				r, err := l.Reserve("x", "cpu", int64(i+1))
				if got := l.Reserved("cpu"); got > 100 || got < 0 {
					t.Errorf("%d reserved of 100", got)
				}
				if err == nil {
					r.Release()
				}
			}
		})
	}
	wg.Wait()
	if got := l.Reserved("cpu"); got != 0 || len(l.Snapshot()) != 0 {
		t.Errorf("%d left at the end", got)
	}
}

func TestSize(t *testing.T) {
	tests := map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB", math.MaxInt64: "8388608.0 TiB"}
	for n, want := range tests {
		if got := gpu.Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}
