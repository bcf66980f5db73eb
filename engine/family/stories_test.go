package family_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/family"
)

// shared finds a folder of the material beside the repository.
func shared(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	path := filepath.Join(dir, "..", "shared", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no reference material: %v", err)
	}
	return path
}

// storyCase is one case of reference.json.
type storyCase struct {
	Prompt string       `json:"prompt"`
	IDs    []int        `json:"prompt_ids"`
	Top    [][2]float64 `json:"next_token_top8"`
	Greedy []int        `json:"greedy_ids"`
	NLL    float64      `json:"mean_nll_of_sequence"`
}

func storyCases(t testing.TB, dir string) []storyCase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref struct{ Cases []storyCase }
	if err := json.Unmarshal(text, &ref); err != nil || len(ref.Cases) == 0 {
		t.Fatalf("reference.json: %v, %d cases", err, len(ref.Cases))
	}
	return ref.Cases
}

// TestStories runs a trained model: the next-token logits of its reference,
// and greedy texts equal to it token for token.
func TestStories(t *testing.T) {
	dir := shared(t, "models/stories260K")
	runtimes(t, func(t *testing.T, rt compute.Runtime) {
		s := newStepper(t, rt, dir, 1, family.GraphOptions{KVCapacity: 256})
		for _, c := range storyCases(t, dir) {
			t.Run(c.Prompt, func(t *testing.T) {
				logits := s.feed(0, 0, c.IDs)[len(c.IDs)-1]
				worst := 0.0
				for _, top := range c.Top {
					worst = max(worst, math.Abs(logits[int(top[0])]-top[1]))
				}
				t.Logf("largest difference of the eight best logits: %.2e", worst)
				if worst > 1e-3 {
					t.Errorf("logits differ by %.2e", worst)
				}
				if rt.Name() == "refexec" { // slow: the beginning says enough
					c.Greedy = c.Greedy[:12]
				}
				var greedy []int
				for past := len(c.IDs); ; past++ {
					best := slices.Index(logits, slices.Max(logits))
					greedy = append(greedy, best)
					if len(greedy) == len(c.Greedy) {
						break
					}
					logits = s.feed(0, past, []int{best})[0]
				}
				if !slices.Equal(greedy, c.Greedy) {
					t.Errorf("greedy tokens\n%v, want\n%v", greedy, c.Greedy)
				}
			})
		}
	})
}

// meanNLL is the mean negative log-likelihood of a text after its first token.
func meanNLL(logits [][]float64, ids []int) float64 {
	sum := 0.0
	for i, id := range ids[1:] {
		most, total := slices.Max(logits[i]), 0.0
		for _, l := range logits[i] {
			total += math.Exp(l - most)
		}
		sum += most + math.Log(total) - logits[i][id]
	}
	return sum / float64(len(ids)-1)
}

// TestStoriesQuantized bounds what quantisation costs a trained model, in
// nats per token of its own greedy texts. A model this small loses far more
// to four bits than one of a useful size.
func TestStoriesQuantized(t *testing.T) {
	dir := shared(t, "models/stories260K")
	runtimes(t, func(t *testing.T, rt compute.Runtime) {
		for _, c := range []struct {
			q     family.Quantization
			block int
			bound float64
		}{{family.None, 0, 1e-4}, {family.Int8, 32, 0.005}, {family.Int4, 32, 0.15}} {
			s := newStepper(t, rt, dir, 1, family.GraphOptions{Quantization: c.q, BlockSize: c.block})
			got, want, n := 0.0, 0.0, 0
			cases := storyCases(t, dir)
			if rt.Name() == "refexec" {
				cases = cases[:1]
			}
			for _, ref := range cases {
				whole := slices.Concat(ref.IDs, ref.Greedy)
				got += meanNLL(s.feed(0, 0, whole), whole) * float64(len(whole)-1)
				want += ref.NLL * float64(len(whole)-1)
				n += len(whole) - 1
			}
			t.Logf("%s block %d: %+.5f nats/token over %d tokens (float32 %.5f)", c.q, c.block, (got-want)/float64(n), n, want/float64(n))
			if cost := math.Abs(got-want) / float64(n); cost > c.bound {
				t.Errorf("%s block %d: %.5f nats/token, want at most %.5f", c.q, c.block, cost, c.bound)
			}
		}
	})
}
