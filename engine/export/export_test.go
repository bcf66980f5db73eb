package export_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine/demo"
	"athanor/engine/export"
	"athanor/engine/family"
	"athanor/engine/llm"
	"athanor/engine/peft"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// baseDir is a folder with the embedded model: float16, embedding and output
// projection shared.
func baseDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "base")
	if err := os.CopyFS(dir, demo.FS()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newAdapter changes the given modules of the model in dir by random values of
// about the given size, relative to weights of 0.03.
func newAdapter(t testing.TB, dir string, seed uint64, rank int, size float64, modules ...string) *peft.Adapter {
	t.Helper()
	fam, err := family.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	d := fam.Decoder()
	rng := rand.New(rand.NewPCG(seed, 1))
	a := &peft.Adapter{Config: peft.Config{BaseModel: demo.Name, Rank: rank, Alpha: 2 * float64(rank)}, Modules: map[string]*peft.Module{}}
	for i := range d.Layers {
		for _, l := range d.Linears() {
			if len(modules) > 0 && !slices.Contains(modules, l.Name) {
				continue
			}
			m := &peft.Module{In: l.In, Out: l.Out, Rank: rank, Alpha: a.Config.Alpha, A: make([]float32, rank*l.In), B: make([]float32, l.Out*rank)}
			for j := range m.A {
				m.A[j] = float32(rng.NormFloat64() / math.Sqrt(float64(rank)))
			}
			for j := range m.B {
				m.B[j] = float32(rng.NormFloat64() * 0.03 * size)
			}
			a.Modules[fmt.Sprintf("layers.%d.%s", i, l.Name)] = m
		}
	}
	return a
}

// digest is the SHA-256 of each file of a folder.
func digest(t testing.TB, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return out
}

func open(t testing.TB, dir string) *weights.Archive {
	t.Helper()
	a, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// TestMerged compares every element with the sum in float64.
func TestMerged(t *testing.T) {
	base := baseDir(t)
	a := newAdapter(t, base, 7, 5, 0.3, "self_attn.k_proj", "mlp.down_proj")
	out := filepath.Join(t.TempDir(), "merged")
	if err := os.MkdirAll(filepath.Join(out, "old"), 0o755); err != nil { // is replaced
		t.Fatal(err)
	}
	if err := export.Merged(t.Context(), base, a, out); err != nil {
		t.Fatal(err)
	}
	before, after := open(t, base), open(t, out)
	if !slices.Equal(before.Names(), after.Names()) {
		t.Fatalf("tensors %v, want %v", after.Names(), before.Names())
	}
	changed := 0
	for _, name := range before.Names() {
		b, _ := before.Tensor(name)
		c, _ := after.Tensor(name)
		if b.Storage != c.Storage || !slices.Equal(b.Shape, c.Shape) {
			t.Fatalf("%s is %s %v, want %s %v", name, c.Storage, c.Shape, b.Storage, b.Shape)
		}
		m := a.Modules[strings.TrimSuffix(strings.TrimPrefix(name, "model."), ".weight")]
		if m == nil {
			if !bytes.Equal(b.Bytes(), c.Bytes()) {
				t.Errorf("%s has changed", name)
			}
			continue
		}
		changed++
		w, got := make([]float32, m.Out*m.In), make([]float32, m.Out*m.In)
		if err := errors.Join(before.Float32(name, w), after.Float32(name, got)); err != nil {
			t.Fatal(err)
		}
		for o := range m.Out {
			for i := range m.In {
				want := float64(w[o*m.In+i])
				for k := range m.Rank {
					want += m.Alpha / float64(m.Rank) * float64(m.B[o*m.Rank+k]) * float64(m.A[k*m.In+i])
				}
				if diff := math.Abs(float64(got[o*m.In+i]) - want); diff > math.Abs(want)/2048+1e-6 { // half a unit in the last place
					t.Fatalf("%s[%d,%d] is %g, want %g", name, o, i, got[o*m.In+i], want)
				}
			}
		}
	}
	if changed != len(a.Modules) {
		t.Errorf("%d tensors changed, want %d", changed, len(a.Modules))
	}

	files, original := digest(t, out), digest(t, base)
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		if files[name] != original[name] {
			t.Errorf("%s is not that of the base", name)
		}
	}
	again := filepath.Join(t.TempDir(), "again")
	if err := export.Merged(t.Context(), base, a, again); err != nil {
		t.Fatal(err)
	}
	if second := digest(t, again); fmt.Sprint(second) != fmt.Sprint(files) {
		t.Errorf("two exports differ: %v, %v", files, second)
	}
	if _, err := llm.Inspect(out, 0); err != nil {
		t.Errorf("the merged model cannot be served: %v", err)
	}
}

func TestMergedRefuses(t *testing.T) {
	base := baseDir(t)
	out := filepath.Join(t.TempDir(), "merged")
	wrong := newAdapter(t, base, 7, 2, 1)
	for _, m := range wrong.Modules {
		m.In++
		m.A = make([]float32, m.In*m.Rank)
	}
	huge := newAdapter(t, base, 7, 2, 1e9, "mlp.up_proj")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for want, err := range map[string]error{
		"the base model's is":   export.Merged(t.Context(), base, wrong, out),
		"which f16 cannot hold": export.Merged(t.Context(), base, huge, out),
		"context canceled":      export.Merged(stopped, base, newAdapter(t, base, 7, 2, 1), out),
		"no such file":          export.Merged(t.Context(), t.TempDir(), wrong, out),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) != 0 {
		t.Errorf("failed exports leave %v, %v", left, err)
	}
}

// TestFull halves every weight but one.
func TestFull(t *testing.T) {
	base := baseDir(t)
	before := open(t, base)
	out := filepath.Join(t.TempDir(), "full")
	var asked []string
	err := export.Full(t.Context(), base, func(name string) ([]float32, error) {
		asked = append(asked, name)
		if name == "norm.weight" {
			return nil, nil
		}
		e, ok := before.Tensor("model." + name)
		if !ok {
			return nil, fmt.Errorf("no %s", name)
		}
		n, _ := tensor.Elements(e.Shape)
		v := make([]float32, n)
		err := before.Float32(e.Name, v)
		for i := range v {
			v[i] /= 2
		}
		return v, err
	}, out)
	if err != nil {
		t.Fatal(err)
	}
	after := open(t, out)
	if len(asked) != len(before.Names()) || !slices.Equal(before.Names(), after.Names()) {
		t.Errorf("asked for %v; wrote %v", asked, after.Names())
	}
	for _, name := range after.Names() {
		e, _ := before.Tensor(name)
		n, _ := tensor.Elements(e.Shape)
		w, got := make([]float32, n), make([]float32, n)
		if err := errors.Join(before.Float32(name, w), after.Float32(name, got)); err != nil {
			t.Fatal(err)
		}
		for i := range w {
			want := w[i] / 2
			if name == "model.norm.weight" {
				want = w[i]
			}
			if math.Abs(float64(got[i]-want)) > 6e-8 { // subnormal halves lose a bit
				t.Fatalf("%s[%d] is %g, want %g", name, i, got[i], want)
			}
		}
	}
	short := func(string) ([]float32, error) { return make([]float32, 3), nil }
	if err := export.Full(t.Context(), base, short, out); err == nil || !strings.Contains(err.Error(), "has 3 values, want") {
		t.Error(err)
	}
}

// TestSharedMatrixStoredTwice has a base that stores its shared matrix under
// both names: both change, or the model would keep its old output projection.
func TestSharedMatrixStoredTwice(t *testing.T) {
	base := baseDir(t)
	before := open(t, base)
	var parts []weights.Part
	for _, name := range before.Names() {
		p, err := before.Part(name)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
		if name == "model.embed_tokens.weight" {
			p.Name = "lm_head.weight"
			parts = append(parts, p)
		}
	}
	if err := os.Remove(filepath.Join(base, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	if err := weights.SaveSharded(base, parts, 1<<20); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "full")
	err := export.Full(t.Context(), base, func(name string) ([]float32, error) {
		if name != "embed_tokens.weight" {
			return nil, nil
		}
		e, _ := before.Tensor("model." + name)
		n, _ := tensor.Elements(e.Shape)
		return make([]float32, n), nil
	}, out)
	if err != nil {
		t.Fatal(err)
	}
	head, ok := open(t, out).Tensor("lm_head.weight")
	if !ok || bytes.ContainsFunc(head.Bytes(), func(r rune) bool { return r != 0 }) {
		t.Error("the second copy of the shared matrix has not changed")
	}
}

func TestAdapter(t *testing.T) {
	base := baseDir(t)
	a := newAdapter(t, base, 3, 4, 1)
	dir := filepath.Join(t.TempDir(), "adapter")
	for range 2 { // the second replaces the first
		if err := export.Adapter(dir, a); err != nil {
			t.Fatal(err)
		}
	}
	got, err := peft.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	fam, err := family.Open(os.DirFS(base))
	if err != nil {
		t.Fatal(err)
	}
	if err := export.CheckAdapter(fam.Decoder(), got); err != nil {
		t.Error(err)
	}
	text, err := json.Marshal(got.Config.Modules)
	if want := `["down_proj","gate_proj","k_proj","o_proj","q_proj","up_proj","v_proj"]`; err != nil || string(text) != want {
		t.Errorf("modules %s, want %s", text, want)
	}
}
