package data

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"athanor/engine"
	"athanor/engine/durable"
)

// Spec says what to tokenize and how.
type Spec struct {
	File          engine.DataFile
	Name          string // "training" or "validation", for errors
	ModelDir      string // in Hugging Face layout; its weights are not read
	Preference    bool   // the dataset holds pairs of answers
	TrainOnInputs string // true, false or auto; "" is auto
	MaxSeqLength  int    // tokens, 0 = no bound
}

func (s *Spec) options() EncodeOptions {
	return EncodeOptions{Preference: s.Preference, TrainOnInputs: s.TrainOnInputs, MaxSeqLength: s.MaxSeqLength}
}

// layoutVersion changes with the files of a set and with the way masks are made.
const layoutVersion = 2

// key is what a set is made of: equal keys give equal sets.
func (s *Spec) key(m *textModel) (string, error) {
	if s.File.SHA256 == "" {
		return "", errors.New("the file's SHA-256 is required")
	}
	inputs := s.TrainOnInputs == InputsTrue
	raw, err := json.Marshal([]any{layoutVersion, s.File.SHA256, s.File.Type, m.identity, s.Preference, inputs, s.MaxSeqLength})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// Tokenize encodes a file into a set in the folder dir, which belongs to this set
// alone: what else is there goes. A set that was made before from the same content
// with the same model and options is opened as it is. progress, which may be nil, is
// told the bytes of the file that are done. Beside the set lies SnapshotFile: the
// first hundred sequences as JSON objects of input_ids, attention_mask and labels.
//
// Errors: *engine.DataError names the line of a sample that cannot be trained on.
// After an error, or when the process dies, dir holds no set.
func Tokenize(ctx context.Context, spec Spec, dir string, progress func(done, total int64)) (*Set, error) {
	e, err := NewEncoder(os.DirFS(spec.ModelDir), spec.options())
	if err != nil {
		return nil, err
	}
	key, err := spec.key(e.m)
	if err != nil {
		return nil, err
	}
	if s, err := openSet(dir, key); s != nil || err != nil {
		return s, err
	}
	temp := dir + ".partial"
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(temp)); err != nil {
		return nil, fmt.Errorf("make room for the tokenized dataset: %w", err)
	}
	if err := tokenizeInto(ctx, e, &spec, key, temp, progress); err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	if err := errors.Join(os.Rename(temp, dir), durable.SyncDir(filepath.Dir(dir))); err != nil {
		return nil, fmt.Errorf("keep the tokenized dataset: %w", err)
	}
	s, err := openSet(dir, key)
	if err == nil && s == nil {
		err = fmt.Errorf("the tokenized dataset in %s was changed", dir)
	}
	return s, err
}

func tokenizeInto(ctx context.Context, e *Encoder, spec *Spec, key, dir string, progress func(done, total int64)) error {
	w, err := newSetWriter(dir)
	if err != nil {
		return err
	}
	w.name, w.m.Key, w.m.Preference = spec.Name, key, spec.Preference
	err = scanFile(ctx, e, spec.File, spec.Name, progress, w.add)
	if err == nil && w.m.Sequences == 0 {
		err = &engine.DataError{File: spec.Name, Message: nothing(w.m.LeftOut, spec.MaxSeqLength)}
	}
	return errors.Join(err, w.close(err == nil))
}

// nothing says why a dataset has no sample to train on.
func nothing(leftOut int64, most int) string {
	if leftOut > 0 {
		return fmt.Sprintf("nothing is left to train on: in all samples the first %d tokens, which is max_seq_length, are prompt", most)
	}
	return "all samples have the weight 0: there is nothing to train on"
}

// setWriter writes the files of a set.
type setWriter struct {
	dir                              string
	name                             string // of the dataset, for errors
	m                                meta
	tokens, weights, index, snapshot *output
}

// output is a buffered file.
type output struct {
	f *os.File
	*bufio.Writer
}

func newSetWriter(dir string) (*setWriter, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the tokenized dataset: %w", err)
	}
	w := &setWriter{dir: dir}
	for name, to := range map[string]**output{tokensFile: &w.tokens, weightsFile: &w.weights, indexFile: &w.index, SnapshotFile: &w.snapshot} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("write the tokenized dataset: %w", err), w.close(false))
		}
		*to = &output{f, bufio.NewWriterSize(f, 1<<18)}
	}
	return w, nil
}

// maxSnapshot is how many sequences the snapshot holds.
const maxSnapshot = 100

// add writes what a line became.
func (w *setWriter) add(line int64, e *Encoded) error {
	w.m.Lines, w.m.Format = line, e.Format
	if e.Truncated {
		w.m.Truncated++
	}
	if e.LeftOut {
		w.m.LeftOut++
		return nil
	}
	for i := range e.Samples {
		if w.m.Sequences == math.MaxInt32 {
			return &engine.DataError{File: w.name, Line: line, Message: fmt.Sprintf("Line %d: there are more than %d sequences", line, math.MaxInt32)}
		}
		if w.m.Sequences < maxSnapshot {
			if err := w.snap(&e.Samples[i]); err != nil {
				return err
			}
		}
		w.write(&e.Samples[i])
	}
	return nil
}

// write appends a sequence; buffered writers keep their first error until the end.
func (w *setWriter) write(s *Sample) {
	w.entry()
	var b [runSize]byte
	for _, id := range s.Tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		_, _ = w.tokens.Write(b[:tokenSize])
	}
	for i := 0; i < len(s.Weights); {
		j := i
		for j < len(s.Weights) && s.Weights[j] == s.Weights[i] {
			j++
		}
		binary.LittleEndian.PutUint32(b[:], uint32(j-i))
		binary.LittleEndian.PutUint32(b[4:], math.Float32bits(s.Weights[i]))
		_, _ = w.weights.Write(b[:])
		w.m.Runs++
		if s.Weights[i] > 0 {
			w.m.Trained += int64(j - i)
			w.m.WeightSum += float64(s.Weights[i]) * float64(j-i)
		}
		i = j
	}
	w.m.Sequences++
	w.m.Tokens += int64(len(s.Tokens))
	w.m.Longest = max(w.m.Longest, len(s.Tokens))
}

func (w *setWriter) entry() {
	var b [entrySize]byte
	binary.LittleEndian.PutUint64(b[:], uint64(w.m.Tokens))
	binary.LittleEndian.PutUint64(b[8:], uint64(w.m.Runs))
	_, _ = w.index.Write(b[:])
}

// snapshotRow is a row of the snapshot; -100 in labels is no loss.
type snapshotRow struct {
	InputIDs      []int32 `json:"input_ids"`
	AttentionMask []int8  `json:"attention_mask"`
	Labels        []int32 `json:"labels"`
}

// noLabel marks a token without loss in labels, as is custom.
const noLabel = -100

// labels are the tokens that carry loss, and noLabel elsewhere.
func (s *Sample) labels() []int32 {
	out := make([]int32, len(s.Tokens))
	for i, id := range s.Tokens {
		if out[i] = id; s.Weights[i] == 0 {
			out[i] = noLabel
		}
	}
	return out
}

func (w *setWriter) snap(s *Sample) error {
	row := snapshotRow{InputIDs: s.Tokens, AttentionMask: make([]int8, len(s.Tokens)), Labels: s.labels()}
	for i := range row.AttentionMask {
		row.AttentionMask[i] = 1
	}
	return json.NewEncoder(w.snapshot).Encode(row)
}

// close ends the files; the set counts only when they are all on disk.
func (w *setWriter) close(complete bool) error {
	if complete {
		w.entry()
	}
	var err error
	for _, o := range []*output{w.tokens, w.weights, w.index, w.snapshot} {
		if o == nil {
			continue
		}
		if complete {
			err = errors.Join(err, o.Flush(), o.f.Sync())
		}
		err = errors.Join(err, o.f.Close())
	}
	if err != nil {
		return fmt.Errorf("write the tokenized dataset: %w", err)
	}
	if !complete {
		return nil
	}
	raw, err := json.Marshal(&w.m)
	if err == nil {
		err = durable.WriteFile(filepath.Join(w.dir, metaFile), raw)
	}
	return errors.Join(err, durable.SyncDir(w.dir))
}
