package weights_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"athanor/engine/tensor"
	"athanor/engine/weights"
)

func ramp(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)/8 - 3
	}
	return out
}

// parts are tensors of all types that Floats writes, one of them longer than a
// chunk, in no order.
func parts() []weights.Part {
	return []weights.Part{
		weights.Values("z", tensor.F32, []int64{2, 3}, ramp(6)),
		weights.Values("odd", tensor.BF16, []int64{3}, ramp(3)),
		weights.Values("half", tensor.F16, []int64{5, 1}, ramp(5)),
		weights.Values("empty", tensor.F32, []int64{0, 4}, nil),
		weights.Values("long", tensor.F32, []int64{3, 100_000}, ramp(300_000)),
	}
}

func TestSaveRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	if err := weights.Save(path, parts()); err != nil {
		t.Fatal(err)
	}
	a := mustOpen(t, dir)
	if got, want := a.Names(), []string{"empty", "half", "long", "odd", "z"}; !slices.Equal(got, want) {
		t.Fatalf("tensors %v, want %v", got, want)
	}
	for name, n := range map[string]int{"z": 6, "half": 5, "odd": 3, "long": 300_000} {
		got := make([]float32, n)
		if err := a.Float32(name, got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, ramp(n)) { // eighths below 64 are exact in all three types
			t.Errorf("%s: values differ", name)
		}
		e, _ := a.Tensor(name)
		if e.Offset%int64(e.DType.Size()) != 0 {
			t.Errorf("%s lies at byte %d, which is not aligned to %s", name, e.Offset, e.DType)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint64(content)
	if length%8 != 0 || !strings.Contains(string(content[8:8+length]), `"__metadata__":{"format":"pt"}`) {
		t.Errorf("header of %d bytes: %.80s", length, content[8:])
	}

	// The same content in another order, copied out of the archive.
	var copies []weights.Part
	for _, name := range a.Names() {
		p, err := a.Part(name)
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, p)
	}
	again := filepath.Join(t.TempDir(), "x.safetensors")
	if err := weights.Save(again, copies); err != nil {
		t.Fatal(err)
	}
	if other, err := os.ReadFile(again); err != nil || !bytes.Equal(content, other) {
		t.Errorf("the copy differs: %v", err)
	}
}

func TestSaveSharded(t *testing.T) {
	dir := t.TempDir()
	if err := weights.SaveSharded(dir, parts(), 40); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "model-*-of-00003.safetensors"))
	if err != nil || len(files) != 3 {
		t.Fatalf("shards %v, %v", files, err)
	}
	a := mustOpen(t, dir)
	for name, want := range map[string]string{
		"empty": "model-00001-of-00003.safetensors", "half": "model-00001-of-00003.safetensors",
		"long": "model-00002-of-00003.safetensors", "odd": "model-00003-of-00003.safetensors", "z": "model-00003-of-00003.safetensors",
	} {
		if e, ok := a.Tensor(name); !ok || e.File != want {
			t.Errorf("%s is in %q, want %q", name, e.File, want)
		}
	}
	whole := t.TempDir()
	if err := weights.SaveSharded(whole, parts(), 5<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(whole, "model.safetensors")); err != nil {
		t.Error(err)
	}
}

func TestSaveFails(t *testing.T) {
	short := weights.Part{Name: "a", Storage: "F32", Shape: []int64{2}, Write: func(w io.Writer) error {
		_, err := w.Write(make([]byte, 4))
		return err
	}}
	for name, c := range map[string]struct {
		parts []weights.Part
		want  string
	}{
		"short":        {[]weights.Part{short}, `tensor "a": 4 bytes written`},
		"twice":        {[]weights.Part{short, short}, `"a" of a tensor is empty, reserved or given twice`},
		"reserved":     {[]weights.Part{{Name: "__metadata__", Storage: "F32"}}, "reserved"},
		"type":         {[]weights.Part{weights.Values("i", tensor.I64, []int64{1}, ramp(1))}, `tensor "i": shape [1]`},
		"too large":    {[]weights.Part{{Name: "a", Storage: "F32", Shape: []int64{math.MaxInt64}}}, "cannot be stored"},
		"few values":   {[]weights.Part{weights.Values("a", tensor.F32, []int64{9}, ramp(3))}, `tensor "a" has 3 values`},
		"not a number": {[]weights.Part{{Name: "a", Storage: "F32", Shape: []int64{-1}}}, "cannot be stored"},
	} {
		err := weights.Save(filepath.Join(t.TempDir(), "x.safetensors"), c.parts)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := weights.Save(path, nil); err == nil {
		t.Error("an existing file was overwritten")
	}
}
