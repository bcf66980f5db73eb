package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// ErrBadLogits is returned for logits from which no token can be drawn: one is
// not a number, or all are minus infinity.
var ErrBadLogits = errors.New("the model's logits hold no usable value")

// Choice is one sampled token. Logprob and Top are set when asked for.
type Choice struct {
	ID      int32
	Logprob float32 // natural logarithm
	Top     []TopLogprob
}

// Sampler picks the tokens of one sequence. Not safe for concurrent use.
type Sampler struct {
	params Params
	vocab  int
	rng    *rand.Rand
	seen   []int32        // distinct ids of the prompt and the answer, for the repetition penalty
	inSeen map[int32]bool // the same as a set
	counts map[int32]int  // generated tokens
	mask   []uint64       // allowed ids, nil is all
	set    []candidate    // scratch
}

// New makes the sampler of one sequence. Ids are below vocab, even when the
// logits are longer (padding rows of the embedding). prompt counts for the
// repetition penalty.
func New(p Params, vocab int, prompt []int32) *Sampler {
	s := &Sampler{params: p, vocab: vocab, counts: map[int32]int{}, rng: rand.New(rand.NewPCG(p.Seed, 0x5851f42d4c957f2d))}
	if p.RepetitionPenalty != 1 {
		s.inSeen = map[int32]bool{}
		for _, id := range prompt {
			s.see(id)
		}
	}
	return s
}

// SetMask restricts the next Sample to the ids whose bit is set; nil allows all.
// The slice is only read and must not change before that call.
func (s *Sampler) SetMask(bits []uint64) { s.mask = bits }

// Sample picks the next token from logits [V], which it may overwrite, and
// records it. top is the number of likeliest tokens to report with their
// log-probabilities, 0 for only the chosen one's, -1 for none.
func (s *Sampler) Sample(logits []float32, top int) (Choice, error) {
	if len(logits) < s.vocab {
		return Choice{}, fmt.Errorf("%d logits for a vocabulary of %d: %w", len(logits), s.vocab, ErrBadLogits)
	}
	logits = logits[:s.vocab]
	var norm float64
	var report []TopLogprob
	if top >= 0 {
		norm = logSumExp(logits)
		report = topLogprobs(logits, norm, top)
	}
	before := s.adjust(logits)
	id, err := s.pick(logits)
	s.mask = nil
	if err != nil {
		return Choice{}, err
	}
	s.record(id)
	c := Choice{ID: id, Top: report}
	if top >= 0 {
		raw, changed := before[id]
		if !changed {
			raw = logits[id]
		}
		c.Logprob = float32(float64(raw) - norm)
	}
	return c, nil
}

// adjust applies penalties and bias in place and returns the logits that it
// changed as they were.
func (s *Sampler) adjust(logits []float32) (before map[int32]float32) {
	p := s.params
	if len(s.seen)+len(s.counts)+len(p.LogitBias) == 0 {
		return nil
	}
	before = map[int32]float32{}
	change := func(id int32, to func(float32) float32) {
		if id < 0 || int(id) >= len(logits) {
			return
		}
		if _, twice := before[id]; !twice {
			before[id] = logits[id]
		}
		logits[id] = to(logits[id])
	}
	for _, id := range s.seen {
		change(id, func(v float32) float32 { return repeated(v, float32(p.RepetitionPenalty)) })
	}
	for id, n := range s.counts {
		change(id, func(v float32) float32 { return v - float32(p.PresencePenalty+p.FrequencyPenalty*float64(n)) })
	}
	for id, bias := range p.LogitBias {
		change(id, func(v float32) float32 {
			if bias <= banned {
				return float32(math.Inf(-1))
			}
			return v + float32(bias)
		})
	}
	return before
}

// repeated is the repetition penalty of Keskar et al. 2019 (CTRL), as Hugging
// Face applies it to negative logits.
func repeated(logit, penalty float32) float32 {
	if logit > 0 {
		return logit / penalty
	}
	return logit * penalty
}

// banned is the bias that rules a token out, as the API documents it.
const banned = -100

func (s *Sampler) allowed(id int) bool {
	return s.mask == nil || id>>6 < len(s.mask) && s.mask[id>>6]>>(id&63)&1 == 1
}

func (s *Sampler) record(id int32) {
	if s.params.PresencePenalty != 0 || s.params.FrequencyPenalty != 0 {
		s.counts[id]++
	}
	if s.inSeen != nil {
		s.see(id)
	}
}

func (s *Sampler) see(id int32) {
	if id >= 0 && int(id) < s.vocab && !s.inSeen[id] {
		s.inSeen[id] = true
		s.seen = append(s.seen, id)
	}
}

// pick draws from the adjusted logits.
func (s *Sampler) pick(logits []float32) (int32, error) {
	best, err := s.argmax(logits)
	if err != nil || s.params.Temperature == 0 {
		return best, err
	}
	set := s.weigh(logits, logits[best])
	if p := s.params.TopP; p < 1 {
		set = nucleus(set, p*mass(set))
	}
	if s.params.MinP > 0 { // the likeliest token has weight 1
		set = slices.DeleteFunc(set, func(c candidate) bool { return c.weight < s.params.MinP })
	}
	return draw(set, s.rng.Float64()*mass(set)), nil
}

// argmax is the allowed id with the highest logit, the lowest such id on ties.
func (s *Sampler) argmax(logits []float32) (int32, error) {
	best, high := -1, float32(math.Inf(-1))
	for id, v := range logits {
		if v != v {
			return 0, fmt.Errorf("logit %d is not a number: %w", id, ErrBadLogits)
		}
		if v > high && (s.mask == nil || s.allowed(id)) {
			best, high = id, v
		}
	}
	if best < 0 || math.IsInf(float64(high), 1) {
		return 0, ErrBadLogits
	}
	return int32(best), nil
}

// negligible is the logarithm of a weight, relative to the largest, below which
// a token is left out: 128k such tokens together have less than 1e-8.
const negligible = -32

// weigh makes the candidates that the mask and top-k allow, with weights
// relative to the largest logit after temperature. Top-k selects on the logits,
// so that few exponentials are taken.
func (s *Sampler) weigh(logits []float32, high float32) []candidate {
	set := s.set[:0]
	lowest := float64(high) + negligible*s.params.Temperature
	for id, v := range logits {
		if float64(v) >= lowest && (s.mask == nil || s.allowed(id)) {
			set = append(set, candidate{int32(id), float64(v)})
		}
	}
	s.set = set
	if k := s.params.TopK; k > 0 && k < len(set) {
		set = largest(set, k)
	}
	inverse := 1 / s.params.Temperature
	for i := range set {
		set[i].weight = exp((set[i].weight - float64(high)) * inverse)
	}
	return set
}
