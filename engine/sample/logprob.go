package sample

import (
	"math"
	"sort"
)

// TopLogprob is one of the likeliest tokens.
type TopLogprob struct {
	ID      int32
	Logprob float32 // natural logarithm
}

// Logprobs gives the log-probability of id under logits [V], of which the first
// vocab count, and the top likeliest tokens, likeliest first. It serves tokens
// that were not sampled too, as those of an echoed prompt. Values are at least
// -9999, so that they can be written as JSON; an id outside the vocabulary has
// that.
func Logprobs(logits []float32, vocab int, id int32, top int) (float32, []TopLogprob) {
	logits = logits[:vocab]
	norm := logSumExp(logits)
	list := topLogprobs(logits, norm, top)
	if id < 0 || int(id) >= vocab {
		return lowest, list
	}
	return logprob(logits[id], norm), list
}

// lowest is what is reported for minus infinity, as in vLLM.
const lowest = -9999

// logprob is the log-probability of a logit; what is not a number is lowest.
func logprob(logit float32, norm float64) float32 {
	if lp := float64(logit) - norm; lp > lowest {
		return float32(lp)
	}
	return lowest
}

// logSumExp is the logarithm of the sum of e^x.
func logSumExp(logits []float32) float64 {
	high := float32(math.Inf(-1))
	for _, v := range logits {
		high = max(high, v)
	}
	if math.IsInf(float64(high), 0) || high != high {
		return float64(high)
	}
	var sum float64
	for _, v := range logits {
		sum += exp(float64(v - high))
	}
	return float64(high) + math.Log(sum)
}

// topLogprobs finds the n likeliest tokens with a small insertion list.
func topLogprobs(logits []float32, norm float64, n int) []TopLogprob {
	if n <= 0 {
		return nil
	}
	n = min(n, len(logits))
	list := make([]TopLogprob, 0, n+1)
	for id, v := range logits {
		if len(list) == n && v <= list[n-1].Logprob {
			continue
		}
		at := sort.Search(len(list), func(i int) bool { return list[i].Logprob < v })
		list = append(list, TopLogprob{})
		copy(list[at+1:], list[at:])
		list[at] = TopLogprob{int32(id), v}
		list = list[:min(len(list), n)]
	}
	for i := range list {
		list[i].Logprob = logprob(list[i].Logprob, norm)
	}
	return list
}
