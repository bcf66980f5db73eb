package estimate_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"athanor/engine/demo"
	"athanor/engine/family"
	"athanor/engine/ort/orttest"
	"athanor/engine/train/data"
	"athanor/engine/train/estimate"
)

// small has one layer whose matrices have 8*8*4 + 8*16*3 = 640 weights.
var small = family.Decoder{Vocabulary: 10, Hidden: 8, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 8, FFN: 16}

// one is an epoch of 5 positions, which the constants of this package do not touch
// in the differences below.
var one = data.Epoch{Rows: 1, Batches: 1, Tokens: 5, Trained: 2, Positions: 5, Squares: 25}

// TestOperations: what products take, worked by hand, as differences between jobs
// whose other work is the same.
func TestOperations(t *testing.T) {
	t.Parallel()
	base := estimate.Job{Model: small, Rank: 1, Train: one, Epochs: 1}
	wider := base // by one to a FFN of 17: 3*8 more weights, and 2 more values of a position
	wider.Model.FFN = 17
	rank := base
	rank.Rank = 2
	head := base // by two more values of a head
	head.Model.HeadDim = 10
	const value, update = 300, 700
	const adapters = 4*(8+8) + 3*(8+16) // In+Out of all modules
	for _, tt := range []struct {
		name string
		job  estimate.Job
		want float64
	}{
		{"wider", wider, 2*2*5*3*8 + 3*2*5*3 + 3*value*5*2 + 3*update},
		{"rank", rank, 3*2*5*adapters + update*adapters},
		// The query, key, value and output matrices have 16 weights more each.
		{"head", head, 2*2*5*4*16 + 3*2*5*4*2 + 3*4*25*2 + 3*value*5*3*2 + update*4*2},
	} {
		if got := tt.job.Operations() - base.Operations(); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%s: got %v more operations, want %v", tt.name, got, tt.want)
		}
	}
}

// TestJobs: how long jobs take beside each other.
func TestJobs(t *testing.T) {
	t.Parallel()
	model, err := estimate.Model(demo.FS())
	if err != nil {
		t.Fatal(err)
	}
	base := estimate.Job{Model: model, Rank: 16, Train: data.Epoch{Rows: 64, Batches: 8, Trained: 2000, Positions: 4096, Squares: 4096 * 64}, Epochs: 1}
	seconds := func(change func(*estimate.Job)) float64 {
		j := base
		change(&j)
		return j.Seconds(1e11)
	}
	first := seconds(func(*estimate.Job) {})
	if got := seconds(func(j *estimate.Job) { j.Epochs = 3 }); math.Abs(got-3*first) > 1e-9*got {
		t.Errorf("three epochs take %v s, one %v", got, first)
	}
	if slow := base.Seconds(1e10); slow <= first || slow > 10*first {
		t.Errorf("a machine of a tenth of the speed takes %v s instead of %v", slow, first)
	}
	longer := map[string]func(*estimate.Job){
		"rank": func(j *estimate.Job) { j.Rank = 64 }, "evaluations": func(j *estimate.Job) { j.Eval, j.Evals = j.Train, 1 },
		"references": func(j *estimate.Job) { j.References = true }, "passes": func(j *estimate.Job) { j.Train.Batches = 64 },
		"attention": func(j *estimate.Job) { j.Train.Squares *= 4 }, "loss": func(j *estimate.Job) { j.Train.Trained = 4096 },
	}
	for name, change := range longer {
		if got := seconds(change); !(got > first) || got > 10*first {
			t.Errorf("%s: got %v s, want more than %v", name, got, first)
		}
	}
	evaluated := seconds(longer["evaluations"]) - first
	if evaluated >= first || evaluated < first/5 {
		t.Errorf("an evaluation takes %v s, an epoch %v", evaluated, first)
	}
	if got := seconds(longer["references"]) - first; got != evaluated {
		t.Errorf("references take %v s, an evaluation of the same data %v", got, evaluated)
	}
	if got := seconds(func(j *estimate.Job) { j.Accumulation = 4 }); got >= first {
		t.Errorf("a quarter of the updates take %v s, all %v", got, first)
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ accumulation, epochs, want int }{{0, 1, 10}, {1, 3, 30}, {3, 2, 8}, {20, 5, 5}} {
		j := estimate.Job{Train: data.Epoch{Batches: 10}, Epochs: tt.epochs, Accumulation: tt.accumulation}
		if got := j.Steps(); got != int64(tt.want) {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}

// TestSpeed: no machine that this runs on is slower than 10^8 or faster than 10^15
// operations a second.
func TestSpeed(t *testing.T) {
	t.Parallel()
	rt := orttest.Open(t)
	if got, err := estimate.Speed(t.Context(), rt, 0); err != nil || got < 1e8 || got > 1e15 {
		t.Errorf("got %g, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := estimate.Speed(ctx, rt, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
