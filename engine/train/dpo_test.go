package train

import (
	"math"
	"slices"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/compute/computetest"
	"athanor/engine/refexec"
	"athanor/engine/train/data"
)

// TestJudge compares pairs with hand-worked ones. The chosen answer has the
// log-probability -4 over 4 tokens, the rejected one -6 over 2 tokens; the
// reference says -5 and -5.
func TestJudge(t *testing.T) {
	chosen, rejected, refs := sequence{-4, 4}, sequence{-6, 2}, [2]float64{-5, -5}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	cases := []struct {
		name             string
		options          engine.DPO
		chosen, rejected float64 // rewards
		margin           float64
		likelihood       float64 // what is added to the loss
		scales           [2]float64
		byChosen         float64 // what is added to its derivative
	}{
		// 0.1 * (-4+5) = 0.1, 0.1 * (-6+5) = -0.1
		{"plain", engine.DPO{Beta: 0.1}, 0.1, -0.1, 0.2, 0, [2]float64{0.1, 0.1}, 0},
		// + 0.5 * 4/4
		{"with likelihood", engine.DPO{Beta: 0.1, RPOAlpha: 0.5}, 0.1, -0.1, 0.2, 0.5, [2]float64{0.1, 0.1}, 0.125},
		// 2 * 1/4 = 0.5, 2 * -1/2 = -1
		{"by length", engine.DPO{Beta: 2, NormalizeByLength: true}, 0.5, -1, 1.5, 0, [2]float64{0.5, 1}, 0},
		// 0.1 * -4, 0.1 * -6
		{"without reference", engine.DPO{Beta: 0.1, ReferenceFree: true}, -0.4, -0.6, 0.2, 0, [2]float64{0.1, 0.1}, 0},
		// 2 * -4/4 = -2, 2 * -6/2 = -6, 4 - 1.5
		{"simpo", engine.DPO{Beta: 2, SimPOGamma: 1.5}, -2, -6, 2.5, 0, [2]float64{0.5, 1}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var r *references
			if needsReference(&c.options) {
				r = &references{}
			}
			v := newPreference(c.options, r).judge(chosen, rejected, refs)
			near(t, "reward of the chosen", v.chosen, c.chosen)
			near(t, "reward of the rejected", v.rejected, c.rejected)
			near(t, "loss", v.loss, -math.Log(sigmoid(c.margin))+c.likelihood)
			wrong := sigmoid(-c.margin)
			near(t, "derivative by the chosen", v.byChosen, wrong*c.scales[0]+c.byChosen)
			near(t, "derivative by the rejected", v.byRejected, -wrong*c.scales[1])
		})
	}
	// The plain case in numbers: log(1 + e^-0.2) and 0.1 / (1 + e^0.2).
	v := newPreference(engine.DPO{Beta: 0.1}, &references{}).judge(chosen, rejected, refs)
	near(t, "loss", v.loss, 0.598138869381592)
	near(t, "derivative", v.byChosen, 0.04501660026875221)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12*(1+math.Abs(want)) {
		t.Errorf("%s = %.16g, want %.16g", what, got, want)
	}
}

// TestJudgeDerivatives compares the derivatives with finite differences.
func TestJudgeDerivatives(t *testing.T) {
	for _, o := range []engine.DPO{
		{Beta: 0.3, RPOAlpha: 0.7}, {Beta: 0.3, NormalizeByLength: true}, {Beta: 1, SimPOGamma: 0.5, RPOAlpha: 1},
	} {
		p := newPreference(o, nil)
		loss := func(c, r float64) float64 { return p.judge(sequence{c, 3}, sequence{r, 5}, [2]float64{}).loss }
		v := p.judge(sequence{-7, 3}, sequence{-6, 5}, [2]float64{})
		const h = 1e-6
		byChosen := -(loss(-7+h, -6) - loss(-7-h, -6)) / (2 * h)
		byRejected := -(loss(-7, -6+h) - loss(-7, -6-h)) / (2 * h)
		if math.Abs(byChosen-v.byChosen) > 1e-8 || math.Abs(byRejected-v.byRejected) > 1e-8 {
			t.Errorf("%+v: %g and %g, want %g and %g", o, v.byChosen, v.byRejected, byChosen, byRejected)
		}
	}
}

// TestJudgeFarOff expects finite numbers for margins that overflow exp.
func TestJudgeFarOff(t *testing.T) {
	p := newPreference(engine.DPO{Beta: 1, ReferenceFree: true}, nil)
	v := p.judge(sequence{-5000, 1}, sequence{0, 1}, [2]float64{})
	if v.loss != 5000 || v.byChosen != 1 || v.byRejected != -1 {
		t.Errorf("%+v", v)
	}
	v = p.judge(sequence{0, 1}, sequence{-5000, 1}, [2]float64{})
	if v.loss != 0 || v.byChosen != 0 {
		t.Errorf("%+v", v)
	}
}

// TestReferencesKnowRows reads the rows of a batch from a file that a batch of
// another shape made.
func TestReferencesKnowRows(t *testing.T) {
	m := newQuadratic(t, refexec.New())
	path := t.TempDir() + "/references.bin"
	source := tokens{count: 3, rows: 2}
	now := func() time.Time { return time.Unix(0, 0) }
	prepare := func(key string, source batches) (*references, error) {
		return prepareReferences(t.Context(), realDisk{}, path, key, m, []batches{source}, time.Hour, now)
	}
	first, err := prepare("key", source)
	if err != nil {
		t.Fatal(err)
	}
	if m.calls != 3 {
		t.Errorf("%d passes", m.calls)
	}
	again, err := prepare("key", source)
	if err != nil {
		t.Fatal(err)
	}
	if m.calls != 3 {
		t.Errorf("computed again")
	}
	narrow, err := source.Batch(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	wide := &data.Batch{Rows: 1, Length: 5, Segments: []int32{0, 0, -1, -1, -1}, Tokens: append(narrow.Tokens[3:5:5], 0, 0, 0), Weights: []float32{1, 1, 0, 0, 0}}
	for _, r := range []*references{first, again} {
		a, err := r.of(narrow, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.of(wide, 0)
		if err != nil || a != b || a >= 0 {
			t.Errorf("%g and %g: %v", a, b, err)
		}
	}
	if _, err := first.of(&data.Batch{Rows: 1, Length: 1, Segments: []int32{0}, Tokens: []int32{99}, Weights: []float32{1}}, 0); err == nil {
		t.Error("a row that nobody computed has a value")
	}
	if _, err := prepare("another key", source); err != nil || m.calls != 6 {
		t.Errorf("%d passes for another job: %v", m.calls, err)
	}
}

// TestPairWeights compares a pair of weight 3 beside one of weight 1 with four
// pairs of weight 1: the same mean loss, rewards and gradient.
func TestPairWeights(t *testing.T) {
	batch := func(weights ...float32) *data.Batch {
		b := &data.Batch{Rows: 2 * len(weights), Length: 2}
		for k, w := range weights {
			for _, target := range []int32{1, 2, 3, 0} { // the rejected answer has one token
				target += int32(4 * min(k, 1))
				b.Tokens, b.Targets, b.Segments = append(b.Tokens, target), append(b.Targets, target), append(b.Segments, 0)
				b.Positions, b.Weights = append(b.Positions, 0), append(b.Weights, w)
			}
			b.Weights[len(b.Weights)-1] = 0
		}
		return b
	}
	for _, o := range []engine.DPO{
		{Beta: 0.5, RPOAlpha: 0.3, ReferenceFree: true}, {Beta: 0.5, NormalizeByLength: true, ReferenceFree: true}, {Beta: 1, SimPOGamma: 0.5},
	} {
		var means []float64
		var gradients [][]float32
		for _, b := range []*data.Batch{batch(1, 3), batch(1, 1, 1, 1)} {
			m := newQuadratic(t, refexec.New())
			p := newPreference(o, nil)
			total, err := p.learn(t.Context(), m, b)
			if err != nil {
				t.Fatal(err)
			}
			metrics := map[string]float64{}
			p.report(total, trainPrefix, metrics)
			means = append(means, total.count, total.mean(), metrics["train/rewards/margins"], metrics["train/logps/rejected"])
			gradients = append(gradients, append(slices.Clone(computetest.Floats(m.params[0].Grad)), computetest.Floats(m.params[1].Grad)...))
		}
		for i := range 4 {
			near(t, "mean", means[i], means[4+i])
		}
		for i, g := range gradients[0] {
			if want := gradients[1][i]; math.Abs(float64(g-want)) > 1e-5*(1+math.Abs(float64(want))) {
				t.Errorf("%+v: gradient %g, want %g", o, g, want)
			}
		}
	}
}
