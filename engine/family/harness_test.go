package family_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"athanor/engine/compute"
	"athanor/engine/enginetest"
	"athanor/engine/family"
	"athanor/engine/onnx"
	"athanor/engine/ort/orttest"
	"athanor/engine/refexec"
	"athanor/engine/tensor"
	"athanor/engine/weights"
)

// runtimes calls test with each runtime that is there.
func runtimes(t *testing.T, test func(t *testing.T, rt compute.Runtime)) {
	t.Run("onnxruntime", func(t *testing.T) { test(t, orttest.Open(t)) })
	t.Run("refexec", func(t *testing.T) { test(t, refexec.New()) })
}

// stepper runs the serving graph of one model with a cache.
type stepper struct {
	t        testing.TB
	rt       compute.Runtime
	program  compute.Program
	d        family.Decoder
	rows     int // of the cache
	capacity int
	cache    []compute.Buffer
}

// openModel opens a model folder and its weights until the test ends.
func openModel(t testing.TB, dir string) (family.Family, *weights.Archive) {
	t.Helper()
	f, err := family.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	a, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return f, a
}

// convert builds the graph of a model folder beside its weights in out.
func convert(t testing.TB, dir, out string, opt family.GraphOptions) (*onnx.Model, family.Family) {
	t.Helper()
	f, a := openModel(t, dir)
	if err := f.Check(a); err != nil {
		t.Fatal(err)
	}
	w, err := weights.NewWriter(t.Context(), filepath.Join(out, "weights.bin"))
	if err != nil {
		t.Fatal(err)
	}
	graphs, err := f.Graph(a, opt, w)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return graphs.Plain, f
}

func newStepper(t testing.TB, rt compute.Runtime, dir string, rows int, opt family.GraphOptions) *stepper {
	t.Helper()
	out := t.TempDir()
	model, f := convert(t, dir, out, opt)
	program, err := rt.Compile(model, compute.Options{Dir: out, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &stepper{t: t, rt: rt, program: program, d: f.Decoder(), rows: rows, capacity: opt.KVCapacity}
	if s.capacity == 0 {
		s.capacity = s.d.ContextLength
	}
	for range 2 * s.d.Layers {
		s.cache = append(s.cache, s.buffer(tensor.F32, rows, s.d.KVHeads, s.capacity, s.d.HeadDim))
	}
	t.Cleanup(func() {
		if err := program.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// buffer lives until the end of the test.
func (s *stepper) buffer(d tensor.DType, shape ...int) compute.Buffer {
	s.t.Helper()
	b, err := s.rt.NewBuffer(d, shape...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return b
}

// step feeds S tokens to each of the rows from first on, of which past[i] are
// cached, and returns the logits at the positions in want, [row][want][V].
// lengths overrides the rows' numbers of real tokens in a padded first prompt.
func (s *stepper) step(first int, ids [][]int, past, want, lengths []int) [][][]float64 {
	s.t.Helper()
	n, steps := len(ids), len(ids[0])
	in := []compute.Buffer{
		s.buffer(tensor.I64, n, steps), s.buffer(tensor.I64, n, len(want), 1), s.buffer(tensor.I32, n), s.buffer(tensor.I32, 1),
	}
	total := 0
	for i, row := range ids {
		for j, id := range row {
			binary.LittleEndian.PutUint64(in[0].Bytes()[8*(i*steps+j):], uint64(id))
		}
		for j, w := range want {
			binary.LittleEndian.PutUint64(in[1].Bytes()[8*(i*len(want)+j):], uint64(w))
		}
		length := past[i] + steps
		if lengths != nil {
			length = lengths[i]
		}
		binary.LittleEndian.PutUint32(in[2].Bytes()[4*i:], uint32(length-1))
		total = max(total, past[i]+steps)
	}
	binary.LittleEndian.PutUint32(in[3].Bytes(), uint32(total))
	logits := s.buffer(tensor.F32, n, len(want), s.d.Vocabulary)
	out := []compute.Buffer{logits}
	for _, c := range s.cache {
		v, err := c.View(first*s.d.KVHeads*s.capacity*s.d.HeadDim, n, s.d.KVHeads, s.capacity, s.d.HeadDim)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = v.Close() })
		in, out = append(in, v), append(out, v)
	}
	if err := s.program.Run(s.t.Context(), in, out); err != nil {
		s.t.Fatal(err)
	}
	values := make([][][]float64, n)
	for i := range values {
		for j := range want {
			row := make([]float64, s.d.Vocabulary)
			for k := range row {
				at := (i*len(want)+j)*s.d.Vocabulary + k
				row[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(logits.Bytes()[4*at:])))
			}
			values[i] = append(values[i], row)
		}
	}
	return values
}

// feed is step for one row that starts at past, with all positions wanted.
func (s *stepper) feed(row, past int, ids []int) [][]float64 {
	s.t.Helper()
	want := make([]int, len(ids))
	for i := range want {
		want[i] = i
	}
	return s.step(row, [][]int{ids}, []int{past}, want, nil)[0]
}

// difference is the largest absolute difference, and the error relative to the
// size of want.
func difference(got, want [][]float64) (largest, relative float64) {
	var e, n float64
	for i := range want {
		for j := range want[i] {
			d := got[i][j] - want[i][j]
			largest = math.Max(largest, math.Abs(d))
			e += d * d
			n += want[i][j] * want[i][j]
		}
	}
	return largest, math.Sqrt(e / n)
}

func writeDecoder(t testing.TB, s enginetest.DecoderShape, seed uint64) string {
	t.Helper()
	dir := t.TempDir()
	if err := enginetest.WriteDecoder(dir, s, seed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runOnOracle compares a model folder with wanted logits, on the plain
// interpreter.
func runOnOracle(t testing.TB, dir string, ids []int, want [][]float64) {
	t.Helper()
	got := newStepper(t, refexec.New(), dir, 1, family.GraphOptions{}).feed(0, 0, ids)
	if largest, _ := difference(got, want); largest > 1e-5 {
		t.Errorf("logits differ by %.2e", largest)
	}
}
