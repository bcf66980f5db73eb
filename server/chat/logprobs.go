package chat

import (
	"athanor/engine"
	"athanor/server/api"
)

// block renders tokens in both shapes of the API; nil for no tokens.
func block(tokens []engine.Token) *api.LogprobsBlock {
	if len(tokens) == 0 {
		return nil
	}
	b := &api.LogprobsBlock{}
	for _, t := range tokens {
		b.Tokens = append(b.Tokens, t.Text)
		b.TokenIDs = append(b.TokenIDs, t.ID)
		b.TokenLogprobs = append(b.TokenLogprobs, t.Logprob)
		entry := api.TokenLogprob{Token: t.Text, Logprob: t.Logprob, Bytes: ints(t.Bytes)}
		if len(t.Top) > 0 {
			top := map[string]float64{}
			for _, a := range t.Top {
				top[a.Text] = max(a.Logprob, lowest(top, a.Text))
				lp := a.Logprob
				entry.TopLogprobs = append(entry.TopLogprobs, api.TokenLogprob{Token: a.Text, Logprob: &lp, Bytes: ints(a.Bytes)})
			}
			b.TopLogprobs = append(b.TopLogprobs, top)
		}
		b.Content = append(b.Content, entry)
	}
	if len(b.TopLogprobs) > 0 && len(b.TopLogprobs) < len(b.Tokens) { // the first echoed token has none
		b.TopLogprobs = append([]map[string]float64{{}}, b.TopLogprobs...)
	}
	return b
}

// lowest is the value of a text that is already in the map: two tokens may
// have the same text, of which the likelier one is shown.
func lowest(top map[string]float64, text string) float64 {
	if lp, ok := top[text]; ok {
		return lp
	}
	return -1e30
}

func ints(b []byte) []int {
	out := make([]int, len(b))
	for i, c := range b {
		out[i] = int(c)
	}
	return out
}
