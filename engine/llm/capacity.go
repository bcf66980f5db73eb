package llm

import "athanor/engine/family"

// DefaultKVBudget is the memory that the key/value cache of one model may grow
// to, in bytes, unless the owner says otherwise.
const DefaultKVBudget = 2 << 30

const (
	maxSlots   = 8
	minSlots   = 1
	minContext = 2048 // below this a context is not shortened to win slots
)

// KVBytesPerToken is the size of one position of one row in the cache: keys
// and values of all layers in float32.
func KVBytesPerToken(d family.Decoder) int64 {
	return int64(d.Layers) * 2 * int64(d.KVHeads) * int64(d.HeadDim) * 4
}

// Capacity divides a budget of bytes into rows and positions: as many rows as
// fit, up to eight, at the model's own context length; for models with very
// long contexts the context is halved until two rows fit, though not below 2048
// tokens. There is always one row, even when it takes more than the budget.
func Capacity(d family.Decoder, budget int64) (context, slots int) {
	if budget <= 0 {
		budget = DefaultKVBudget
	}
	per := KVBytesPerToken(d)
	context = d.ContextLength
	for context/2 >= minContext && int64(context)*per > budget/2 {
		context /= 2
	}
	slots = int(budget / (int64(context) * per))
	return context, min(max(slots, minSlots), maxSlots)
}
