package llm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/engine"
	"athanor/engine/export"
	"athanor/engine/family"
	"athanor/engine/llm"
	"athanor/engine/peft"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// wideBase is the embedded model with its weights in float32, so that merging
// rounds nothing.
func wideBase(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(loaded.dir, "wide")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	from := demoDir(t)
	a, err := weights.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var parts []weights.Part
	for _, name := range a.Names() {
		e, _ := a.Tensor(name)
		n, _ := tensor.Elements(e.Shape)
		values := make([]float32, n)
		if err := a.Float32(name, values); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, weights.Values(name, tensor.F32, e.Shape, values))
	}
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "model.safetensors")
	if err := errors.Join(os.Remove(file), weights.Save(file, parts)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newAdapter writes a random adapter of the model in base, strong enough to
// change what it says. With some, it leaves modules out.
func newAdapter(t testing.TB, base string, seed uint64, rank int, some bool) *engine.Adapter {
	t.Helper()
	fam, err := family.Open(os.DirFS(base))
	if err != nil {
		t.Fatal(err)
	}
	d := fam.Decoder()
	rng := rand.New(rand.NewPCG(seed, 9))
	a := &peft.Adapter{Config: peft.Config{Rank: rank, Alpha: float64(2 * rank)}, Modules: map[string]*peft.Module{}}
	for i := range d.Layers {
		for j, l := range d.Linears() {
			if some && (i+j)%3 != 0 {
				continue
			}
			m := &peft.Module{In: l.In, Out: l.Out, Rank: rank, Alpha: a.Config.Alpha, A: make([]float32, rank*l.In), B: make([]float32, l.Out*rank)}
			for k := range m.A {
				m.A[k] = float32(rng.NormFloat64() * 0.03 / math.Sqrt(float64(rank)))
			}
			for k := range m.B {
				m.B[k] = float32(rng.NormFloat64() * 0.5)
			}
			a.Modules[fmt.Sprintf("layers.%d.%s", i, l.Name)] = m
		}
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := peft.Write(dir, a); err != nil {
		t.Fatal(err)
	}
	return &engine.Adapter{Key: fmt.Sprint(seed), Dir: dir}
}

func merged(t testing.TB, base string, a *engine.Adapter) string {
	t.Helper()
	read, err := peft.Read(a.Dir)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "merged")
	if err := export.Merged(t.Context(), base, read, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func options(dir string, q llm.Quantization, adapters bool) llm.Options {
	return llm.Options{
		Name: filepath.Base(dir), Dir: dir, Quantization: q, CacheDir: filepath.Join(loaded.dir, "cache", filepath.Base(filepath.Dir(dir))+filepath.Base(dir)),
		Adapters: adapters, Context: 256, Now: func() time.Time { return time.Unix(0, 0).UTC() },
	}
}

// adapted loads the wide base for adapters.
func adapted(t testing.TB, q llm.Quantization) (string, *llm.Model) {
	t.Helper()
	dir, key := wideBase(t), "adapted-"+string(q)
	if m := loaded.models[key]; m != nil {
		return dir, m
	}
	m, err := llm.Load(t.Context(), openRuntime(t), options(dir, q, true))
	if err != nil {
		t.Fatal(err)
	}
	loaded.models[key] = m
	return dir, m
}

func logits(t testing.TB, opt llm.Options, tokens []int32, a *engine.Adapter) [][]float32 {
	t.Helper()
	s, err := llm.OpenScorer(t.Context(), openRuntime(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out [][]float32
	err = s.Logits(t.Context(), tokens, a, func(_ int, row []float32) error {
		out = append(out, append([]float32(nil), row...))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func with(r *engine.GenerateRequest, a *engine.Adapter) *engine.GenerateRequest {
	r.Adapter = a
	return r
}

// TestAdapterEqualsMerged compares a model with an adapter beside it and the
// same model with the adapter in its weights.
func TestAdapterEqualsMerged(t *testing.T) {
	base, m := adapted(t, "none")
	var tokens []int32
	for i := range 70 { // more than a chunk
		tokens = append(tokens, int32(i*37%2000))
	}
	plain := logits(t, options(base, "none", false), tokens, nil)
	for i, a := range []*engine.Adapter{newAdapter(t, base, 1, 8, false), newAdapter(t, base, 2, 3, true)} {
		dir := merged(t, base, a)
		got, want := logits(t, options(base, "none", true), tokens, a), logits(t, options(dir, "none", false), tokens, nil)
		worst, change := 0.0, 0.0
		for p := range want {
			for v := range want[p] {
				worst = max(worst, math.Abs(float64(got[p][v]-want[p][v])))
				change = max(change, math.Abs(float64(plain[p][v]-want[p][v])))
			}
		}
		t.Logf("adapter %d: logits differ by %.2g at most; the adapter changes them by up to %.2g", i, worst, change)
		if len(got) != len(tokens) || worst > 1e-4 || change < 0.1 {
			t.Errorf("adapter %d: %d rows, largest difference %g, change %g", i, len(got), worst, change)
		}
		whole, err := llm.Load(t.Context(), openRuntime(t), options(dir, "none", false))
		if err != nil {
			t.Fatal(err)
		}
		const prompt = "Once upon a time there was a little dog. The dog"
		served, direct := say(t, m, with(greedy(prompt, 24), a)), say(t, whole, greedy(prompt, 24))
		if alone := say(t, m, greedy(prompt, 24)); served != direct || served == alone {
			t.Errorf("adapter %d says %q, merged %q, the base %q", i, served, direct, alone)
		}
		if err := whole.Close(); err != nil {
			t.Error(err)
		}
	}
	if again := logits(t, options(base, "none", true), tokens, nil); fmt.Sprint(again) != fmt.Sprint(plain) {
		t.Error("without an adapter the graph with adapters gives other logits than the plain one")
	}
}

// TestAdaptersMixed runs rows with adapters of many ranks and with none
// together, more adapters than there are rows, and compares each answer with
// the one that it got alone.
func TestAdaptersMixed(t *testing.T) {
	for _, q := range []llm.Quantization{"none", "int8"} {
		t.Run(string(q), func(t *testing.T) {
			base, m := adapted(t, q)
			adapters := []*engine.Adapter{nil}
			for i := range 2 * m.Model().Slots {
				adapters = append(adapters, newAdapter(t, base, uint64(100+i), 1+i*5%23, i%2 == 0))
			}
			request := func(i int) *engine.GenerateRequest {
				r := with(greedy(strings.Repeat("One day a girl found a box. ", 1+i%4), 5+i%7), adapters[i%len(adapters)])
				r.N = 1 + i%7/6 // some share a prompt
				return r
			}
			solo, together := make([]string, len(adapters)), make([]string, len(adapters))
			for i := range solo {
				solo[i] = say(t, m, request(i))
			}
			var wg sync.WaitGroup
			for i := range together {
				wg.Go(func() { together[i] = say(t, m, request(i)) })
			}
			wg.Wait()
			different := map[string]bool{}
			for i := range solo {
				different[solo[i]] = true
				if solo[i] != together[i] {
					t.Errorf("request %d: alone %q, in a batch %q", i, solo[i], together[i])
				}
			}
			if len(different) < len(adapters)/2 { // the weakest may change nothing in so few tokens
				t.Errorf("%d adapters give %d different answers", len(adapters), len(different))
			}
		})
	}
}

// TestBadAdapters: each costs its own request, and names no path of the server.
func TestBadAdapters(t *testing.T) {
	base, m := adapted(t, "none")
	good := newAdapter(t, base, 5, 4, false)
	other, err := peft.Read(good.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range other.Modules {
		module.In--
		module.A = module.A[:module.In*module.Rank]
	}
	narrow := filepath.Join(t.TempDir(), "narrow")
	if err := peft.Write(narrow, other); err != nil {
		t.Fatal(err)
	}
	damaged := newAdapter(t, base, 6, 4, false).Dir
	if err := os.Truncate(filepath.Join(damaged, peft.WeightsFile), 3000); err != nil {
		t.Fatal(err)
	}
	for want, dir := range map[string]string{
		"its files are missing":  filepath.Join(t.TempDir(), "nothing"),
		"the base model's is":    narrow,
		"does not fit a file of": damaged,
	} {
		err := m.Generate(t.Context(), with(greedy("Once", 4), &engine.Adapter{Key: dir, Dir: dir}), func(*engine.Event) error { return nil })
		bad := new(engine.RequestError)
		if !errors.As(err, &bad) || bad.Param != "model" || !strings.Contains(bad.Message, want) || strings.Contains(bad.Message, os.TempDir()) {
			t.Errorf("%v, want %q", err, want)
		}
		if got := say(t, m, with(greedy("Once", 4), good)); got == "" {
			t.Error("no answer afterwards")
		}
	}
	err = demoModel(t).Generate(t.Context(), with(greedy("Once", 4), good), func(*engine.Event) error { return nil })
	if bad := new(engine.RequestError); !errors.As(err, &bad) || bad.Param != "model" {
		t.Errorf("a model that takes no adapters: %v", err)
	}
}

// TestGraphsShareWeights loads both forms of a graph from one cache.
func TestGraphsShareWeights(t *testing.T) {
	base := wideBase(t)
	opt := options(base, "int4", true)
	opt.CacheDir = t.TempDir()
	for _, adapters := range []bool{true, false} {
		opt.Adapters = adapters
		s, err := llm.OpenScorer(t.Context(), openRuntime(t), opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	found := 0
	err := fs.WalkDir(os.DirFS(opt.CacheDir), ".", func(path string, d fs.DirEntry, err error) error {
		if d.Name() == "weights.bin" {
			found++
		}
		return err
	})
	if err != nil || found != 1 {
		t.Errorf("%d files of weights, %v", found, err)
	}
}
