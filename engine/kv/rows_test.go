package kv_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"athanor/engine/kv"
)

// TestRowsAgainstMemory replays random admissions, promotions and removals on a
// simulated cache: after the moves each row must hold its owner's data.
func TestRowsAgainstMemory(t *testing.T) {
	const capacity = 5
	rng := rand.New(rand.NewPCG(1, 2))
	rows := kv.New[int](capacity)
	memory := make([]int, capacity)
	var alive []int
	for next := 1; next < 5000; next++ {
		switch rng.IntN(3) {
		case 0:
			if row, ok := rows.Admit(next); ok {
				memory[row] = next
				alive = append(alive, next)
			}
		case 1:
			rows.Promote()
		case 2:
			if len(alive) == 0 {
				continue
			}
			i := rng.IntN(len(alive))
			for _, m := range rows.Remove(alive[i]) {
				memory[m.To] = memory[m.From]
			}
			alive = slices.Delete(alive, i, i+1)
		}
		if got, want := rows.Free(), capacity-len(alive); got != want {
			t.Fatalf("step %d: free %d, want %d", next, got, want)
		}
		for _, s := range alive {
			row, ok := rows.Row(s)
			if !ok || memory[row] != s {
				t.Fatalf("step %d: sequence %d in row %d (%v), memory has %d", next, s, row, ok, memory[row])
			}
		}
		for i, s := range rows.Decoding() {
			if memory[i] != s {
				t.Fatalf("step %d: decoding rows are not contiguous: %v in %v", next, rows.Decoding(), memory)
			}
		}
	}
}

func TestAdmitRefusesWhenFullOrBusy(t *testing.T) {
	rows := kv.New[string](2)
	if _, ok := rows.Admit("a"); !ok {
		t.Fatal("the first admission must succeed")
	}
	if _, ok := rows.Admit("b"); ok {
		t.Fatal("two prompts at once were admitted")
	}
	rows.Promote()
	rows.Admit("b")
	rows.Promote()
	if _, ok := rows.Admit("c"); ok {
		t.Fatal("admitted into a full cache")
	}
	if moves := rows.Remove("unknown"); moves != nil {
		t.Fatalf("removing a stranger moves %v", moves)
	}
}
