package weights_test

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// file assembles a safetensors file from a header and data.
func file(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, data)...)
}

// folder writes files, given as name and content, into a new folder.
func folder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func mustOpen(t testing.TB, dir string) *weights.Archive {
	t.Helper()
	a, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

const goodHeader = `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},` +
	`"h":{"dtype":"F16","shape":[2],"data_offsets":[24,28]},"s":{"dtype":"I64","shape":[],"data_offsets":[28,36]},` +
	`"e":{"dtype":"BF16","shape":[0,4],"data_offsets":[36,36]}}   `

func TestOpenSingleFile(t *testing.T) {
	content := file(goodHeader, 36)
	data := content[len(content)-36:]
	for i := range 6 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)+0.5))
	}
	binary.LittleEndian.PutUint16(data[24:], tensor.F32ToF16(-2))
	binary.LittleEndian.PutUint16(data[26:], tensor.F32ToF16(0.25))
	for _, name := range []string{"model.safetensors", "other.safetensors"} {
		a := mustOpen(t, folder(t, map[string][]byte{name: content, "README.md": nil}))
		if got := a.Names(); !slices.Equal(got, []string{"a", "e", "h", "s"}) {
			t.Fatalf("names %v", got)
		}
		e, ok := a.Tensor("a")
		if !ok || e.DType != tensor.F32 || !slices.Equal(e.Shape, []int64{2, 3}) || len(e.Bytes()) != 24 || e.Offset != int64(len(content)-36) {
			t.Errorf("entry %+v, %v", e, ok)
		}
		half := make([]float32, 2)
		if err := a.Float32("h", half); err != nil || !slices.Equal(half, []float32{-2, 0.25}) {
			t.Errorf("h = %v, %v", half, err)
		}
		m, err := a.Matrix("a")
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, 3)
		if err := m.Read(row, 1); err != nil || !slices.Equal(row, []float32{3.5, 4.5, 5.5}) {
			t.Errorf("row %v, %v", row, err)
		}
		if err := m.Read(row, 2); err == nil {
			t.Error("row beyond the end was read")
		}
		if err := a.Float32("s", make([]float32, 1)); err == nil || !strings.Contains(err.Error(), "I64") {
			t.Errorf("integers read as floats: %v", err)
		}
		if err := a.Float32("a", make([]float32, 5)); err == nil {
			t.Error("wrong length accepted")
		}
		if _, err := a.Matrix("missing"); err == nil || !strings.Contains(err.Error(), `"missing"`) {
			t.Errorf("missing tensor: %v", err)
		}
		if err := m.Read(row, 0); err != nil || row[0] != 0.5 {
			t.Errorf("read again: %v, %v", row, err)
		}
	}
}

func TestOpenShards(t *testing.T) {
	one := `{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"unlisted":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`
	two := `{"y":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}`
	a := mustOpen(t, folder(t, map[string][]byte{
		"model-1.safetensors": file(one, 8), "model-2.safetensors": file(two, 4), "stray.safetensors": []byte("not one"),
		"model.safetensors.index.json": []byte(`{"metadata":{"total_size":8},"weight_map":{"x":"model-1.safetensors","y":"model-2.safetensors"}}`),
	}))
	if got := a.Names(); !slices.Equal(got, []string{"x", "y"}) {
		t.Fatalf("names %v", got)
	}
	if e, _ := a.Tensor("y"); e.File != "model-2.safetensors" || e.DType != tensor.Invalid || e.Storage != "F8_E4M3" {
		t.Errorf("entry %+v", e)
	}
	if err := a.Float32("y", make([]float32, 4)); err == nil || !strings.Contains(err.Error(), "F8_E4M3") {
		t.Errorf("float8 is not refused by name: %v", err)
	}
}

func TestOpenRefusesBadHeaders(t *testing.T) {
	entry := func(dtype, shape, offsets string) string {
		return `{"w":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	cases := []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, "byte 0: file ends within the header length"},
		{"short length", []byte{1, 2, 3}, "byte 3: file ends within the header length"},
		{"length over the limit", append([]byte{0, 0, 0, 0x80, 0, 0, 0, 0}, make([]byte, 9)...), "over the limit"},
		{"length of all ones", slices.Repeat([]byte{0xff}, 16), "over the limit"},
		{"length beyond the file", binary.LittleEndian.AppendUint64(nil, 100), "does not fit"},
		{"not JSON", file("hello", 0), "not JSON"},
		{"array", file("[]", 0), "not a JSON object"},
		{"cut JSON", file(`{"w":{"dtype"`, 0), "unexpected EOF"},
		{"text after", file(`{} {}`, 0), "after the end"},
		{"invalid UTF-8", file("{\"\xff\":{}}", 0), "JSON"},
		{"deep", file(`{"w":{"x":`+strings.Repeat("[", 100000), 0), "JSON"},
		{"duplicate tensor", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "duplicate"},
		{"duplicate key", file(`{"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "duplicate"},
		{"metadata not text", file(`{"__metadata__":{"a":1}}`, 0), "not a string"},
		{"missing fields", file(`{"w":{"dtype":"U8"}}`, 0), "not all there"},
		{"unknown dtype", file(entry("F99", "[1]", "[0,1]"), 1), `unknown dtype "F99"`},
		{"negative dim", file(entry("U8", "[-1]", "[0,1]"), 1), "whole number"},
		{"fractional dim", file(entry("U8", "[1.5]", "[0,1]"), 1), "whole number"},
		{"dim of 2^63", file(entry("U8", "[9223372036854775808]", "[0,1]"), 1), "whole number"},
		{"dim as text", file(entry("U8", `["1"]`, "[0,1]"), 1), "not a number"},
		{"rank of 17", file(entry("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1), "more than 16"},
		{"three offsets", file(entry("U8", "[1]", "[0,1,2]"), 1), "more than 2"},
		{"one offset", file(entry("U8", "[1]", "[0]"), 1), "not two numbers"},
		{"offsets backwards", file(entry("U8", "[1]", "[1,0]"), 1), "run backwards"},
		{"offsets outside", file(entry("U8", "[100]", "[0,100]"), 4), "outside of the file"},
		{"offsets at 2^63", file(entry("U8", "[1]", "[9223372036854775806,9223372036854775807]"), 4), "outside of the file"},
		{"size differs", file(entry("F32", "[2]", "[0,4]"), 4), "needs 8 bytes, data_offsets give 4"},
		{"product overflows", file(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0), "overflows"},
		{"bits overflow", file(entry("F32", "[4611686018427387904]", "[0,0]"), 0), "overflows"},
		{"half bytes", file(entry("F4", "[3]", "[0,1]"), 1), "no whole number of bytes"},
		{"overlap", file(`{"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), `overlaps tensor "v"`},
		{"hole", file(`{"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}`, 6), "2 bytes before it"},
		{"trailing bytes", file(entry("U8", "[1]", "[0,1]"), 9), "8 bytes after the last tensor"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := weights.Open(folder(t, map[string][]byte{"model.safetensors": c.content}))
			var e *weights.Error
			if !errors.As(err, &e) || e.File != "model.safetensors" {
				t.Fatalf("got %v, want a *weights.Error about model.safetensors", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want it to contain %q", err, c.want)
			}
		})
	}
}

func TestErrorNamesTensorAndByte(t *testing.T) {
	header := `{"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[9],"data_offsets":[2,11]}}`
	_, err := weights.Open(folder(t, map[string][]byte{"model.safetensors": file(header, 6)}))
	var e *weights.Error
	if !errors.As(err, &e) || e.Tensor != "w" || e.Offset != int64(8+len(header)+2) {
		t.Errorf("got %+v", e)
	}
}

// TestOpenHugeHeader has a header length of 2 GB in a sparse file that is long
// enough for it: nothing of that size may be read or allocated.
func TestOpenHugeHeader(t *testing.T) {
	dir := folder(t, map[string][]byte{"model.safetensors": binary.LittleEndian.AppendUint64(nil, 2<<30)})
	if err := os.Truncate(filepath.Join(dir, "model.safetensors"), 3<<30); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	if _, err := weights.Open(dir); err == nil || !strings.Contains(err.Error(), "header of 2147483648 bytes is over the limit") {
		t.Errorf("got %v", err)
	}
}

func TestOpenRefusesBadIndexes(t *testing.T) {
	good := file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4)
	cases := []struct{ name, index, want string }{
		{"itself", `{"weight_map":{"x":"model.safetensors.index.json"}}`, "an index cannot be a shard"},
		{"another index", `{"weight_map":{"x":"b.safetensors.index.json"}}`, "an index cannot be a shard"},
		{"parent folder", `{"weight_map":{"x":"../x.safetensors"}}`, "outside of the model's folder"},
		{"absolute", `{"weight_map":{"x":"/etc/x.safetensors"}}`, "outside of the model's folder"},
		{"sub folder", `{"weight_map":{"x":"a/x.safetensors"}}`, "outside of the model's folder"},
		{"backslash", `{"weight_map":{"x":"..\\x.safetensors"}}`, "outside of the model's folder"},
		{"no suffix", `{"weight_map":{"x":"pytorch_model.bin"}}`, "not a .safetensors file"},
		{"missing shard", `{"weight_map":{"x":"gone.safetensors"}}`, "gone.safetensors: open"},
		{"missing tensor", `{"weight_map":{"x":"one.safetensors","y":"one.safetensors"}}`, `tensor "y": is not in this shard`},
		{"duplicate key", `{"weight_map":{"x":"one.safetensors","x":"one.safetensors"}}`, "duplicate"},
		{"empty", `{"weight_map":{}}`, "names no tensor"},
		{"not JSON", `weight_map`, "not a shard index"},
		{"wrong type", `{"weight_map":{"x":3}}`, "not a shard index"},
		{"directory", `{"weight_map":{"x":"dir.safetensors"}}`, "not a regular file"},
		{"fifo", `{"weight_map":{"x":"fifo.safetensors"}}`, "not a regular file"},
		{"link to the index", `{"weight_map":{"x":"link.safetensors"}}`, "over the limit"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, map[string][]byte{"one.safetensors": good, "model.safetensors.index.json": []byte(c.index)})
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "dir.safetensors"), 0o755),
				syscall.Mkfifo(filepath.Join(dir, "fifo.safetensors"), 0o644),
				os.Symlink("model.safetensors.index.json", filepath.Join(dir, "link.safetensors"))); err != nil {
				t.Fatal(err)
			}
			if _, err := weights.Open(dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to contain %q", err, c.want)
			}
		})
	}
}

func TestOpenRefusesPickleAndNothing(t *testing.T) {
	for _, name := range []string{"pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "consolidated.00.pth", "last.ckpt"} {
		// A pickle that would run a command if anything ever loaded it.
		_, err := weights.Open(folder(t, map[string][]byte{name: []byte("cos\nsystem\n(S'exit 1'\ntR.")}))
		if !errors.Is(err, weights.ErrPickle) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want ErrPickle", name, err)
		}
	}
	if _, err := weights.Open(t.TempDir()); !errors.Is(err, weights.ErrNoWeights) {
		t.Errorf("empty folder: got %v", err)
	}
	two := map[string][]byte{"a.safetensors": nil, "b.safetensors": nil}
	if _, err := weights.Open(folder(t, two)); !errors.Is(err, weights.ErrNoWeights) {
		t.Errorf("two files without an index: got %v", err)
	}
	if _, err := weights.Open(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: got %v", err)
	}
}

// TestFileCutAfterOpen shrinks a mapped file: reads fail with an error that
// names the place, and the process lives on.
func TestFileCutAfterOpen(t *testing.T) {
	header := `{"w":{"dtype":"F32","shape":[4,65536],"data_offsets":[0,1048576]}}`
	dir := folder(t, map[string][]byte{"model.safetensors": file(header, 1<<20)})
	a := mustOpen(t, dir)
	m, err := a.Matrix("w")
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 65536)
	for _, size := range []int64{1<<20 - 1, 300_000, 0} {
		if err := os.Truncate(filepath.Join(dir, "model.safetensors"), size); err != nil {
			t.Fatal(err)
		}
		err := m.Read(row, 3)
		var e *weights.Error
		if !errors.As(err, &e) || e.File != "model.safetensors" || e.Offset < size {
			t.Errorf("cut to %d: got %v", size, err)
		}
	}
	entry, _ := a.Tensor("w")
	if err := a.Guard(func() error { _ = entry.Bytes()[1<<19]; return nil }); err == nil {
		t.Error("Guard saw nothing")
	}
	defer func() {
		if recover() == nil {
			t.Error("Guard swallowed a panic that is no fault of a mapping")
		}
	}()
	_ = a.Guard(func() error { panic("other") })
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{},"weight_map":{"x":"one.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"x":"../one.safetensors"}}`))
	shard := file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4)
	f.Fuzz(func(t *testing.T, index []byte) {
		a, err := weights.Open(folder(t, map[string][]byte{"one.safetensors": shard, "model.safetensors.index.json": index}))
		if err != nil {
			return
		}
		defer a.Close()
		if got := a.Names(); !slices.Equal(got, []string{"x"}) {
			t.Fatalf("names %q", got)
		}
	})
}
