package app_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"athanor/engine/demo"
	"athanor/engine/family"
	"athanor/engine/peft"
	"athanor/server/app"
	"athanor/server/config"
	"athanor/store/resource"
)

// writeAdapter writes a random adapter of the embedded model into dir.
func writeAdapter(t testing.TB, dir string, seed uint64, rank int) {
	t.Helper()
	fam, err := family.Open(demo.FS())
	if err != nil {
		t.Fatal(err)
	}
	d := fam.Decoder()
	rng := rand.New(rand.NewPCG(seed, 5))
	a := &peft.Adapter{Config: peft.Config{BaseModel: demo.Name, Rank: rank, Alpha: float64(2 * rank)}, Modules: map[string]*peft.Module{}}
	for i := range d.Layers {
		for _, l := range d.Linears()[:2] { // queries and keys
			m := &peft.Module{In: l.In, Out: l.Out, Rank: rank, Alpha: a.Config.Alpha, A: make([]float32, rank*l.In), B: make([]float32, l.Out*rank)}
			for k := range m.A {
				m.A[k] = float32(rng.NormFloat64() * 0.1)
			}
			for k := range m.B {
				m.B[k] = float32(rng.NormFloat64() * 0.5)
			}
			a.Modules[fmt.Sprintf("layers.%d.%s", i, l.Name)] = m
		}
	}
	if err := peft.Write(dir, a); err != nil {
		t.Fatal(err)
	}
}

// addAdapter registers an adapter of the embedded model and gives its name.
func addAdapter(t testing.TB, a *app.App, seed uint64, damage func(dir string) error) string {
	t.Helper()
	base, err := a.Models().Resolve("", app.DemoModel)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	writeAdapter(t, dir, seed, 1+int(3*seed))
	if damage != nil {
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
	}
	m := &resource.Model{
		Name: fmt.Sprintf("me/adapter-%d", seed), BaseID: base.ID, Type: base.Type, Architecture: base.Architecture,
		Quantization: base.Quantization, ContextLength: base.ContextLength, Parameters: base.Parameters, SourceKind: "trained",
	}
	if err := a.Install(t.Context(), m, dir); err != nil {
		t.Fatal(err)
	}
	return m.Name
}

// ask gives the greedy answer of a model to one message.
func (a *appliance) ask(t testing.TB, model string) string {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Tell me a story about a dog."}],"max_tokens":12,"temperature":0}`, model)
	status, text := post(t, a.Base+"/v1/chat/completions", a.Admin, body)
	var answer struct {
		Model   string
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || len(answer.Choices) != 1 || answer.Model != model {
		t.Errorf("%s: %d %s, %v", model, status, text, err)
		return ""
	}
	return answer.Choices[0].Message.Content
}

// workers are the processes of the engine that run.
func (a *appliance) workers() (pids []int) {
	for _, w := range a.Workers() {
		if w.PID != 0 {
			pids = append(pids, w.PID)
		}
	}
	return pids
}

// TestAdaptersOnOneWorker chats with a model and with adapters of it, alone and
// all at once: one worker process serves them all, the one that was there before
// the first adapter is replaced, and a damaged adapter costs only its own
// requests.
func TestAdaptersOnOneWorker(t *testing.T) {
	t.Parallel()
	lib := library(t)
	a := open(t, func(c *config.Config, o *app.Options) { c.ONNXRuntime, o.Generator = lib, nil })
	plain := a.ask(t, app.DemoModel)
	first := a.workers()
	all := []string{app.DemoModel}
	for seed := range uint64(3) {
		all = append(all, addAdapter(t, a.App, seed+1, nil))
	}
	if got := a.ask(t, app.DemoModel); got != plain || !slices.Equal(a.workers(), first) || len(first) != 1 {
		t.Errorf("the base says %q from %v, before its adapters %q from %v", got, a.workers(), plain, first)
	}
	// The worker takes no adapters: all of these find that at once.
	together := func() []string {
		answers := make([]string, 3*len(all))
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = a.ask(t, all[i%len(all)]) })
		}
		wg.Wait()
		return answers
	}
	busy := together()
	second := a.workers()
	if len(second) != 1 || second[0] == first[0] {
		t.Errorf("workers %v, with adapters %v", first, second)
	}
	var alone []string
	for _, name := range all {
		alone = append(alone, a.ask(t, name))
	}
	if alone[0] != plain {
		t.Errorf("the base says %q beside adapters, %q without", alone[0], plain)
	}
	if different := slices.Compact(slices.Sorted(slices.Values(alone))); len(different) != len(all) {
		t.Errorf("answers %q", alone)
	}
	damaged := addAdapter(t, a.App, 9, func(dir string) error { return os.Truncate(filepath.Join(dir, peft.WeightsFile), 1000) })
	status, text := post(t, a.Base+"/v1/completions", a.Admin, fmt.Sprintf(`{"model":%q,"prompt":"Once"}`, damaged))
	if status != http.StatusBadRequest || !strings.Contains(text, `"param":"model"`) || strings.Contains(text, a.cfg.Data) {
		t.Errorf("a damaged adapter: %d %s", status, text)
	}
	for i, got := range append(busy, together()...) {
		if want := alone[i%len(all)]; got != want {
			t.Errorf("%s says %q among others, %q alone", all[i%len(all)], got, want)
		}
	}
	if now := a.workers(); !slices.Equal(now, second) {
		t.Errorf("the worker was replaced again: %v, then %v", second, now)
	}
}
