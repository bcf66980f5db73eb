package data

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// Files of a set. All numbers are little-endian.
const (
	metaFile     = "set.json"
	tokensFile   = "tokens.bin"  // int32 of each token
	weightsFile  = "weights.bin" // runs of one weight: uint32 count, float32 weight
	indexFile    = "index.bin"   // for each sequence, and behind the last: uint64 tokens and uint64 runs before it
	SnapshotFile = "snapshot.jsonl"
)

// Sizes of records in bytes.
const (
	tokenSize = 4
	runSize   = 8
	entrySize = 16
)

// meta describes a set.
type meta struct {
	Key        string  `json:"key"` // of what it was made
	Format     string  `json:"format"`
	Preference bool    `json:"preference"`
	Sequences  int     `json:"sequences"`
	Tokens     int64   `json:"tokens"`
	Trained    int64   `json:"trained"`
	Runs       int64   `json:"runs"`
	Truncated  int64   `json:"truncated"`
	LeftOut    int64   `json:"left_out"`
	Lines      int64   `json:"lines"`
	WeightSum  float64 `json:"weight_sum"`
	Longest    int     `json:"longest"`
}

// Set is a tokenized dataset on disk. Its methods may be called by any goroutine,
// Close excepted.
type Set struct {
	meta
	tokens, weights, index *os.File
}

// Len counts the sequences: samples, or two for each preference pair.
func (s *Set) Len() int { return s.Sequences }

// Tokens counts the tokens of all sequences.
func (s *Set) Tokens() int64 { return s.meta.Tokens }

// Trained counts the tokens that carry loss.
func (s *Set) Trained() int64 { return s.meta.Trained }

// Truncated counts the samples that were cut at MaxSeqLength.
func (s *Set) Truncated() int64 { return s.meta.Truncated }

// LeftOut counts the samples, among the truncated ones, that are not in the set
// because nothing that carries loss lies before the cut.
func (s *Set) LeftOut() int64 { return s.meta.LeftOut }

// Preference reports whether the set holds pairs: sequence 2i is the chosen one
// and 2i+1 the rejected one, which begin with the same prompt.
func (s *Set) Preference() bool { return s.meta.Preference }

// Format is that of the dataset, such as FormatConversation.
func (s *Set) Format() string { return s.meta.Format }

// Longest is the length of the longest sequence in tokens.
func (s *Set) Longest() int { return s.meta.Longest }

// WeightSum is the sum of the weights of all tokens.
func (s *Set) WeightSum() float64 { return s.meta.WeightSum }

// errIncomplete is a set of which not all is there.
var errIncomplete = errors.New("the tokenized dataset is not complete")

// openSet opens the set in dir if it was made for key. It returns nil without an
// error where there is none, another one, or only a part.
func openSet(dir, key string) (*Set, error) {
	raw, err := os.ReadFile(filepath.Join(dir, metaFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the tokenized dataset: %w", err)
	}
	s := &Set{}
	if json.Unmarshal(raw, &s.meta) != nil || s.Key != key {
		return nil, nil
	}
	for _, f := range []struct {
		name string
		file **os.File
		size int64
	}{
		{tokensFile, &s.tokens, s.meta.Tokens * tokenSize}, {weightsFile, &s.weights, s.Runs * runSize},
		{indexFile, &s.index, int64(s.Sequences+1) * entrySize},
	} {
		if *f.file, err = openSized(filepath.Join(dir, f.name), f.size); err != nil {
			err = errors.Join(fmt.Errorf("open the tokenized dataset: %w", err), s.Close())
			if errors.Is(err, errIncomplete) || errors.Is(err, os.ErrNotExist) {
				return nil, nil
			}
			return nil, err
		}
	}
	return s, nil
}

func openSized(name string, size int64) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = fmt.Errorf("%w: %s has %d bytes, not %d", errIncomplete, name, info.Size(), size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close closes the files.
func (s *Set) Close() error {
	var err error
	for _, f := range []*os.File{s.tokens, s.weights, s.index} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Sample reads sequence i.
func (s *Set) Sample(i int) (Sample, error) {
	if i < 0 || i >= s.Sequences {
		return Sample{}, fmt.Errorf("there is no sequence %d in a set of %d", i, s.Sequences)
	}
	var entry [2 * entrySize]byte
	if _, err := s.index.ReadAt(entry[:], int64(i)*entrySize); err != nil {
		return Sample{}, fmt.Errorf("read the tokenized dataset: %w", err)
	}
	at := func(k int) int64 { return int64(binary.LittleEndian.Uint64(entry[8*k:])) }
	first, firstRun, last, lastRun := at(0), at(1), at(2), at(3)
	if first < 0 || first > last || last > s.meta.Tokens || firstRun < 0 || firstRun > lastRun || lastRun > s.Runs || last-first > int64(s.meta.Longest) {
		return Sample{}, fmt.Errorf("the tokenized dataset is damaged at sequence %d", i)
	}
	raw := make([]byte, (last-first)*tokenSize)
	if _, err := s.tokens.ReadAt(raw, first*tokenSize); err != nil {
		return Sample{}, fmt.Errorf("read the tokenized dataset: %w", err)
	}
	out := Sample{Tokens: make([]int32, last-first), Weights: make([]float32, 0, last-first)}
	for j := range out.Tokens {
		out.Tokens[j] = int32(binary.LittleEndian.Uint32(raw[tokenSize*j:]))
	}
	raw = slices.Grow(raw[:0], int(lastRun-firstRun)*runSize)[:(lastRun-firstRun)*runSize]
	if _, err := s.weights.ReadAt(raw, firstRun*runSize); err != nil {
		return Sample{}, fmt.Errorf("read the tokenized dataset: %w", err)
	}
	for ; len(raw) > 0; raw = raw[runSize:] {
		n := int(binary.LittleEndian.Uint32(raw))
		if n > cap(out.Weights)-len(out.Weights) {
			return Sample{}, fmt.Errorf("the tokenized dataset is damaged at sequence %d", i)
		}
		w := math.Float32frombits(binary.LittleEndian.Uint32(raw[4:]))
		for range n {
			out.Weights = append(out.Weights, w)
		}
	}
	if len(out.Weights) != len(out.Tokens) {
		return Sample{}, fmt.Errorf("the tokenized dataset is damaged at sequence %d", i)
	}
	return out, nil
}

// lengths reads the number of tokens of every sequence.
func (s *Set) lengths() ([]int32, error) {
	out := make([]int32, s.Sequences)
	buf := make([]byte, 4096*entrySize)
	before := int64(0)
	for i := 0; i <= s.Sequences; {
		n := min(len(buf)/entrySize, s.Sequences+1-i)
		if _, err := s.index.ReadAt(buf[:n*entrySize], int64(i)*entrySize); err != nil {
			return nil, fmt.Errorf("read the tokenized dataset: %w", err)
		}
		for k := range n {
			at := int64(binary.LittleEndian.Uint64(buf[k*entrySize:]))
			if i+k > 0 {
				if at < before || at-before > int64(s.meta.Longest) {
					return nil, fmt.Errorf("the tokenized dataset is damaged at sequence %d", i+k-1)
				}
				out[i+k-1] = int32(at - before)
			}
			before = at
		}
		i += n
	}
	return out, nil
}
