package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
	raw    []float32      // scratch: the logits before adjust
}

// New makes the sampler of one sequence. Ids are below vocab, even when the
// logits are longer (padding rows of the embedding). prompt counts for the
// repetition penalty.
func New(p Params, vocab int, prompt []int32) *Sampler {
	s := &Sampler{params: p, vocab: vocab, counts: map[int32]int{}, rng: rand.New(rand.NewPCG(p.Seed, 0x5851f42d4c957f2d))}
	if p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 {
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
	raw := logits
	if top >= 0 && (s.adjusts() || s.mask != nil) {
		s.raw = append(s.raw[:0], logits...)
		raw = s.raw
	}
	s.adjust(logits)
	s.restrict(logits)
	id, err := s.pick(logits)
	if err != nil {
		return Choice{}, err
	}
	s.record(id)
	c := Choice{ID: id}
	if top >= 0 {
		c.Logprob, c.Top = Logprobs(raw, s.vocab, id, top)
	}
	return c, nil
}

// adjusts says whether adjust would change anything.
func (s *Sampler) adjusts() bool {
	return len(s.seen)+len(s.counts)+len(s.params.LogitBias) > 0
}

// adjust applies penalties and bias in place.
func (s *Sampler) adjust(logits []float32) {
	p := s.params
	for _, id := range s.seen {
		logits[id] = repeated(logits[id], float32(p.RepetitionPenalty))
	}
	for id, n := range s.counts {
		logits[id] -= float32(p.PresencePenalty + p.FrequencyPenalty*float64(n))
	}
	for id, bias := range p.LogitBias {
		switch {
		case id < 0 || int(id) >= len(logits):
		case bias <= banned:
			logits[id] = float32(math.Inf(-1))
		default:
			logits[id] += float32(bias)
		}
	}
}

// restrict rules out what the mask does not allow, and uses the mask up.
func (s *Sampler) restrict(logits []float32) {
	if s.mask == nil {
		return
	}
	for id := range logits {
		if id>>6 >= len(s.mask) || s.mask[id>>6]>>(id&63)&1 == 0 {
			logits[id] = float32(math.Inf(-1))
		}
	}
	s.mask = nil
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
