package sched_test

import (
	"testing"

	"athanor/engine/sched"
)

func TestPlan(t *testing.T) {
	tests := []struct {
		name  string
		state sched.State
		want  sched.Step
	}{
		{"nothing", sched.State{Free: 4, Chunk: 512}, sched.Step{}},
		{"first prompt", sched.State{Waiting: 1, Free: 4, Remaining: 30, Chunk: 512}, sched.Step{Admit: true, Prefill: 30}},
		{"long prompt in chunks", sched.State{Waiting: 1, Free: 4, Remaining: 3000, Chunk: 512}, sched.Step{Admit: true, Prefill: 512}},
		{"rest of the prompt", sched.State{Prefilling: true, Free: 3, Remaining: 100, Chunk: 512, LastPrefill: true}, sched.Step{Prefill: 100}},
		{"answers between chunks", sched.State{Prefilling: true, Decoding: 2, Remaining: 900, Chunk: 512, LastPrefill: true}, sched.Step{Decode: true}},
		{"chunk after answers", sched.State{Prefilling: true, Decoding: 2, Remaining: 900, Chunk: 512}, sched.Step{Prefill: 512}},
		{"full", sched.State{Waiting: 3, Decoding: 4, Remaining: 10, Chunk: 512}, sched.Step{Decode: true}},
		{"decode only", sched.State{Decoding: 1, Free: 3, Chunk: 512}, sched.Step{Decode: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := sched.Plan(tt.state); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestTimeline plays arrivals against the planner and checks that no running
// answer waits for more than one chunk between two of its tokens.
func TestTimeline(t *testing.T) {
	const rows, chunk = 4, 64
	prompts := []int{10, 500, 64, 65, 1, 700}
	answers := []int{50, 20, 5, 90, 30, 10}
	var decoding []int
	waiting := []int{0, 1, 2, 3, 4, 5}
	prefilling, remaining, last, gap := -1, 0, false, 0
	for range 10000 {
		state := sched.State{Waiting: len(waiting), Free: rows - len(decoding), Decoding: len(decoding), Chunk: chunk, LastPrefill: last}
		if prefilling >= 0 {
			state.Prefilling, state.Remaining = true, remaining
			state.Free--
		} else if len(waiting) > 0 {
			state.Remaining = prompts[waiting[0]]
		}
		step := sched.Plan(state)
		if step.Idle() {
			if len(waiting) > 0 || prefilling >= 0 || len(decoding) > 0 {
				t.Fatalf("idle with work left: %+v", state)
			}
			return
		}
		if step.Prefill > chunk {
			t.Fatalf("chunk of %d tokens", step.Prefill)
		}
		if step.Admit {
			prefilling, remaining, waiting = waiting[0], state.Remaining, waiting[1:]
		}
		if last = step.Prefill > 0; last {
			if gap++; gap > 1 && len(decoding) > 0 {
				t.Fatal("a running answer waits for two chunks")
			}
			if remaining -= step.Prefill; remaining == 0 {
				decoding, prefilling = append(decoding, prefilling), -1
			}
		}
		if step.Decode {
			gap = 0
			var still []int
			for _, s := range decoding {
				if answers[s]--; answers[s] > 0 {
					still = append(still, s)
				}
			}
			decoding = still
		}
	}
	t.Fatal("the work never ended")
}
