package llm_test

import (
	"testing"

	"athanor/engine/family"
	"athanor/engine/llm"
)

func TestCapacity(t *testing.T) {
	// 16 layers of 8 heads of 64: 64 KiB a position, as Llama 3.2 1B has.
	decoder := func(context int) family.Decoder {
		return family.Decoder{Layers: 16, KVHeads: 8, HeadDim: 64, ContextLength: context}
	}
	if got := llm.KVBytesPerToken(decoder(1)); got != 64<<10 {
		t.Fatalf("%d bytes a token, want %d", got, 64<<10)
	}
	for _, c := range []struct {
		name           string
		own            int   // context of the model
		budget         int64 // bytes
		context, slots int
	}{
		{"short context, no more than eight rows", 1024, 2 << 30, 1024, 8},
		{"long context is halved until two rows fit", 131072, 2 << 30, 16384, 2},
		{"default budget", 131072, 0, 16384, 2},
		{"exactly two rows", 8192, 1 << 30, 8192, 2},
		{"three rows", 2048, 400 << 20, 2048, 3},
		{"not below 2048", 4096, 1 << 20, 2048, 1},
		{"a short one is never shortened", 1500, 1 << 20, 1500, 1},
		{"no power of two", 40960, 1 << 30, 5120, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			if context, slots := llm.Capacity(decoder(c.own), c.budget); context != c.context || slots != c.slots {
				t.Errorf("%d tokens in %d rows, want %d in %d", context, slots, c.context, c.slots)
			}
		})
	}
}
