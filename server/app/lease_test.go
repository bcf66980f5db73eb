package app

import (
	"errors"
	"testing"

	"athanor/engine/llm"
)

func TestPlansAreReadOnce(t *testing.T) {
	var p plans
	calls, broken := 0, errors.New("broken")
	inspect := func() (llm.Description, error) {
		if calls++; calls == 1 {
			return llm.Description{}, broken
		}
		return llm.Description{Slots: calls}, nil
	}
	if _, err := p.of("a", inspect); !errors.Is(err, broken) {
		t.Fatalf("got %v, want the error of the files", err)
	}
	for range 3 { // an error is not remembered, a description is
		if d, err := p.of("a", inspect); err != nil || d.Slots != 2 {
			t.Errorf("got %+v, %v, want the first description", d, err)
		}
	}
	if d, err := p.of("b", inspect); err != nil || d.Slots != 3 {
		t.Errorf("another revision: %+v, %v", d, err)
	}
}
