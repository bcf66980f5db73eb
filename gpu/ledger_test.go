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
	a, err := l.Reserve(gpu.Entry{Owner: "a", Device: "cpu", Bytes: 6 * gib})
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Reserve(gpu.Entry{Owner: "b", Device: "cpu", Bytes: 4 * gib})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Reserve(gpu.Entry{Owner: "c", Device: "cpu", Bytes: 1})
	full := new(gpu.NoRoomError)
	if !errors.Is(err, gpu.ErrNoRoom) || !errors.As(err, &full) || full.Free() != 0 || full.Reserved != 10*gib {
		t.Errorf("one byte too many: %v", err)
	}
	if _, err := l.Reserve(gpu.Entry{Owner: "c", Device: "GPU-1", Bytes: 4 * gib}); err != nil {
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
	_, err = l.Reserve(gpu.Entry{Owner: "d", Device: "cpu", Bytes: 2 * gib})
	if !errors.As(err, &full) || full.Free() != gib || !strings.Contains(err.Error(), "cpu has 1.0 GiB free of 5.0 GiB, 2.0 GiB are needed") {
		t.Errorf("after the capacity shrank: %v", err)
	}
	l.SetCapacity("cpu", gib)
	if _, err = l.Reserve(gpu.Entry{Owner: "d", Device: "cpu", Bytes: 0}); !errors.As(err, &full) || full.Free() != 0 {
		t.Errorf("with more promised than there is: %v", err)
	}
	b.Release()
	(*gpu.Reservation)(nil).Release()
	for _, bytes := range []int64{-1, math.MinInt64} {
		if _, err := l.Reserve(gpu.Entry{Owner: "e", Device: "cpu", Bytes: bytes}); err == nil {
			t.Errorf("%d bytes were reserved", bytes)
		}
	}
	if _, err := l.Reserve(gpu.Entry{Owner: "e", Device: "cpu", Bytes: math.MaxInt64}); !errors.Is(err, gpu.ErrNoRoom) {
		t.Errorf("the largest size: %v", err)
	}
	if _, err := l.Reserve(gpu.Entry{Owner: "e", Device: "GPU-9", Bytes: 1}); !errors.Is(err, gpu.ErrNoDevice) {
		t.Errorf("unknown device: %v", err)
	}
}

func TestLedgerOfCores(t *testing.T) {
	l := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 10, Cores: 4})
	train := func(owner string, bytes int64, cores int) (*gpu.Reservation, error) {
		return l.Reserve(gpu.Entry{Owner: owner, Device: "cpu", Bytes: bytes, Cores: cores})
	}
	first, err := train("first", 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	taken := new(gpu.NoCoresError)
	if _, err := train("second", 2, 2); !errors.Is(err, gpu.ErrNoCores) || !errors.As(err, &taken) ||
		!strings.Contains(err.Error(), "cpu has 1 free of 4, 2 are needed") {
		t.Errorf("one core too many: %v", err)
	}
	if _, err := train("negative", 0, -1); err == nil {
		t.Error("a negative number of cores was reserved")
	}
	if _, err := train("serving", 8, 0); err != nil {
		t.Errorf("work without cores of its own: %v", err)
	}
	l.SetCores("cpu", 5)
	l.SetCores("GPU-9", 5)
	if _, err := train("second", 0, 2); err != nil {
		t.Errorf("with more cores to give away: %v", err)
	}
	first.Release()
	if _, err := train("third", 2, 3); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

func TestLedgerShrinks(t *testing.T) {
	l := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 10, Cores: 1})
	r, err := l.Reserve(gpu.Entry{Owner: "a", Device: "cpu", Bytes: 8, Cores: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ to, want int64 }{{9, 8}, {-1, 8}, {5, 5}, {7, 5}, {0, 0}} {
		r.Shrink(step.to)
		if r.Bytes() != step.want || l.Reserved("cpu") != step.want {
			t.Errorf("after Shrink(%d): %d of %d, want %d", step.to, r.Bytes(), l.Reserved("cpu"), step.want)
		}
	}
	r.Release()
	r.Shrink(0)
	if l.Reserved("cpu") != 0 || r.Bytes() != 0 || (*gpu.Reservation)(nil).Bytes() != 0 {
		t.Errorf("%d reserved at the end", l.Reserved("cpu"))
	}
	(*gpu.Reservation)(nil).Shrink(1)
}

func TestLedgerStates(t *testing.T) {
	cpu, card := gpu.Device{ID: "cpu", Kind: gpu.CPU, MemoryBytes: 10, Cores: 4}, gpu.Device{ID: "GPU-1", Kind: gpu.CUDA, MemoryBytes: 5}
	l := gpu.NewLedger(cpu, card)
	if _, err := l.Reserve(gpu.Entry{Owner: "a", Device: "cpu", Bytes: 3, Cores: 2}); err != nil {
		t.Fatal(err)
	}
	got := l.States([]gpu.Usage{{Device: "cpu", UsedBytes: 4}}, map[string]int64{"cpu": 1})
	want := []gpu.State{{Device: card, Used: gpu.UnknownBytes}, {Device: cpu, Used: 4, Ours: 1, Reserved: 3, Cores: 2}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestLedgerNeverOvercommits lets many owners compete.
func TestLedgerNeverOvercommits(t *testing.T) {
	l := gpu.NewLedger(gpu.Device{ID: "cpu", MemoryBytes: 100})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 200 {
				r, err := l.Reserve(gpu.Entry{Owner: "x", Device: "cpu", Bytes: int64(i + 1)})
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
