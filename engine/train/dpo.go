package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"athanor/engine"
	"athanor/engine/train/data"
)

// preference is direct preference optimisation and its relatives. For a pair
// with answers of |c| and |r| tokens:
//
//	s(x)   = log p(x), minus the reference's log p(x) unless ReferenceFree,
//	         divided by |x| with NormalizeByLength
//	margin = Beta * (s(chosen) - s(rejected)) - SimPOGamma
//	loss   = -log sigmoid(margin) - RPOAlpha * log p(chosen) / |c|
//
// Rafailov and others 2023 (arXiv:2305.18290); the likelihood term is from
// Pang and others 2024 (arXiv:2404.19733), the margin without a reference from
// Meng and others 2024 (arXiv:2405.14734). Rewards are Beta * s. The weight of a
// sample is that of its pair's loss and changes nothing inside of it.
type preference struct {
	options    engine.DPO
	references *references // nil without a reference
}

func newPreference(o engine.DPO, r *references) *preference {
	if o.SimPOGamma != 0 {
		o.ReferenceFree, o.NormalizeByLength = true, true
	}
	return &preference{o, r}
}

// needsReference says whether the starting weights have a part in the loss.
func needsReference(o *engine.DPO) bool { return o != nil && !o.ReferenceFree && o.SimPOGamma == 0 }

// sequence is one answer: its log-probability and its number of tokens.
type sequence struct{ logp, length float64 }

// sequences sums up the rows of a batch.
func sequences(b *data.Batch, logp []float32) []sequence {
	out := make([]sequence, b.Rows)
	for row := range out {
		for i := row * b.Length; i < (row+1)*b.Length; i++ {
			if b.Weights[i] != 0 {
				out[row].logp += float64(logp[i])
				out[row].length++
			}
		}
	}
	return out
}

// verdict is the loss of one pair and its derivatives by the negative
// log-probabilities of the two answers.
type verdict struct {
	weight                 float64 // of the pair
	loss                   float64
	chosen, rejected       float64 // rewards
	byChosen, byRejected   float64
	logChosen, logRejected float64
}

// judge computes the loss of a pair; refs are the log-probabilities of the
// starting weights.
func (p *preference) judge(chosen, rejected sequence, refs [2]float64) verdict {
	o := p.options
	scale := func(s sequence) float64 {
		if o.NormalizeByLength && s.length > 0 {
			return o.Beta / s.length
		}
		return o.Beta
	}
	if p.references == nil {
		refs = [2]float64{}
	}
	v := verdict{logChosen: chosen.logp, logRejected: rejected.logp}
	v.chosen = scale(chosen) * (chosen.logp - refs[0])
	v.rejected = scale(rejected) * (rejected.logp - refs[1])
	margin := v.chosen - v.rejected - o.SimPOGamma
	v.loss = softplus(-margin)
	wrong := 1 / (1 + math.Exp(margin)) // -d loss / d margin
	v.byChosen, v.byRejected = wrong*scale(chosen), -wrong*scale(rejected)
	if chosen.length > 0 {
		v.loss -= o.RPOAlpha * chosen.logp / chosen.length
		v.byChosen += o.RPOAlpha / chosen.length
	}
	return v
}

// softplus is log(1 + exp(x)).
func softplus(x float64) float64 {
	return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
}

// verdicts judges the pairs of a batch: rows 2k and 2k+1.
func (p *preference) verdicts(b *data.Batch, logp []float32) ([]verdict, error) {
	if b.Rows%2 != 0 {
		return nil, fmt.Errorf("a batch of pairs has %d rows", b.Rows)
	}
	rows := sequences(b, logp)
	list := make([]verdict, b.Rows/2)
	for i := range list {
		var refs [2]float64
		if p.references != nil {
			for k := range refs {
				var err error
				if refs[k], err = p.references.of(b, 2*i+k); err != nil {
					return nil, err
				}
			}
		}
		list[i] = p.judge(rows[2*i], rows[2*i+1], refs)
		list[i].weight = float64(slices.Max(b.Weights[2*i*b.Length : 2*(i+1)*b.Length]))
	}
	return list, nil
}

func (p *preference) learn(ctx context.Context, m model, b *data.Batch) (tally, error) {
	var t tally
	var wrong error
	_, err := m.Accumulate(ctx, b, func(logp []float32) []float32 {
		var list []verdict
		if list, wrong = p.verdicts(b, logp); wrong != nil {
			return nil
		}
		t = p.tally(b, list)
		return weightsOf(b, list)
	})
	if wrong != nil {
		err = wrong
	}
	return t, err
}

func (p *preference) measure(ctx context.Context, m model, b *data.Batch) (tally, error) {
	logp, err := m.Logprobs(ctx, b)
	if err != nil {
		return tally{}, err
	}
	list, err := p.verdicts(b, logp)
	return p.tally(b, list), err
}

// weightsOf is the weight of each log-probability in the gradient of the
// weighted sum of the losses. All tokens of a pair that carry loss have its
// weight.
func weightsOf(b *data.Batch, list []verdict) []float32 {
	out := make([]float32, len(b.Weights))
	for i, w := range b.Weights {
		v := list[i/b.Length/2]
		by := v.byChosen
		if i/b.Length%2 == 1 {
			by = v.byRejected
		}
		out[i] = float32(by * float64(w))
	}
	return out
}

func (p *preference) tally(b *data.Batch, list []verdict) tally {
	t := tally{tokens: tokensOf(b)}
	for _, v := range list {
		t.count += v.weight
		t.loss += v.weight * v.loss
		t.chosen += v.weight * v.chosen
		t.rejected += v.weight * v.rejected
		t.logpChosen += v.weight * v.logChosen
		t.logpRejected += v.weight * v.logRejected
		if v.chosen > v.rejected {
			t.correct += v.weight
		}
	}
	return t
}

func (p *preference) report(t tally, prefix string, metrics map[string]float64) {
	metrics[prefix+"rewards/chosen"] = t.chosen / t.count
	metrics[prefix+"rewards/rejected"] = t.rejected / t.count
	metrics[prefix+"rewards/accuracies"] = t.correct / t.count
	metrics[prefix+"rewards/margins"] = (t.chosen - t.rejected) / t.count
	metrics[prefix+"logps/chosen"] = t.logpChosen / t.count
	metrics[prefix+"logps/rejected"] = t.logpRejected / t.count
}
