package train

import (
	"context"
	"math"
	"time"

	"athanor/engine"
	"athanor/engine/train/data"
)

// model computes passes; exec.Executor is the real one. The gradient that
// Accumulate adds is that of the sum of -w times the log-probability, where w
// is what weigh makes of the log-probabilities, or the weights of the batch
// when it is nil.
type model interface {
	ZeroGrad()
	Logprobs(ctx context.Context, b *data.Batch) ([]float32, error)
	Accumulate(ctx context.Context, b *data.Batch, weigh func(logp []float32) []float32) ([]float32, error)
}

// objective is what a job minimises: the sum of Loss over Count of its tallies.
type objective interface {
	// learn adds the gradient of the sum of the losses of a batch.
	learn(ctx context.Context, m model, b *data.Batch) (tally, error)
	// measure computes the same without a gradient.
	measure(ctx context.Context, m model, b *data.Batch) (tally, error)
	// report adds what the objective has to say of a tally beside its loss,
	// under names with the given prefix.
	report(t tally, prefix string, metrics map[string]float64)
}

// newObjective is the objective of a spec. For preferences with a reference it
// computes what the weights of m say of all rows of the sources, which must be
// those of the start.
func newObjective(ctx context.Context, s *engine.TrainSpec, m model, d disk, path, key string, sources []batches, saveEvery time.Duration, now func() time.Time) (objective, error) {
	if s.DPO == nil {
		return supervised{}, nil
	}
	if !needsReference(s.DPO) {
		return newPreference(*s.DPO, nil), nil
	}
	r, err := prepareReferences(ctx, d, path, key, m, sources, saveEvery, now)
	if err != nil {
		return nil, err
	}
	return newPreference(*s.DPO, r), nil
}

// tally is a sum over batches.
type tally struct {
	loss, count float64 // count is the sum of weights: of tokens, or of pairs
	tokens      int64   // without padding

	// Of preferences.
	chosen, rejected         float64 // rewards
	correct                  float64 // weight of the pairs whose chosen answer has the higher reward
	logpChosen, logpRejected float64
}

func (t *tally) add(o tally) {
	t.loss += o.loss
	t.count += o.count
	t.tokens += o.tokens
	t.chosen += o.chosen
	t.rejected += o.rejected
	t.correct += o.correct
	t.logpChosen += o.logpChosen
	t.logpRejected += o.logpRejected
}

// mean is the loss, not a number when nothing carried loss.
func (t tally) mean() float64 { return t.loss / t.count }

// supervised is the mean negative log-probability of the targets.
type supervised struct{}

func (supervised) learn(ctx context.Context, m model, b *data.Batch) (tally, error) {
	logp, err := m.Accumulate(ctx, b, nil)
	return likelihood(b, logp), err
}

func (supervised) measure(ctx context.Context, m model, b *data.Batch) (tally, error) {
	logp, err := m.Logprobs(ctx, b)
	return likelihood(b, logp), err
}

func likelihood(b *data.Batch, logp []float32) tally {
	t := tally{tokens: tokensOf(b)}
	for i, lp := range logp {
		if w := float64(b.Weights[i]); w != 0 {
			t.loss -= w * float64(lp)
			t.count += w
		}
	}
	return t
}

// report gives the perplexity of an evaluation.
func (supervised) report(t tally, prefix string, metrics map[string]float64) {
	if prefix == evalPrefix {
		metrics[prefix+"perplexity"] = math.Exp(t.mean())
	}
}

func tokensOf(b *data.Batch) (n int64) {
	for _, s := range b.Segments {
		if s >= 0 {
			n++
		}
	}
	return n
}
