package dataset

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// Formats of training data.
const (
	General      = "general"           // text
	Conversation = "conversation"      // messages
	Instruction  = "instruction"       // prompt, completion
	Preference   = "preference_openai" // input, preferred_output, non_preferred_output
	Tokenized    = "tokenized"         // input_ids, attention_mask, labels; Parquet
)

// Report is what Check found.
type Report struct {
	Format               string // of training data; "" when no line shows it
	Lines                int64  // samples, the broken ones included
	Errors               int64  // lines with a problem
	Problems             []Problem
	HasSampleWeights     bool
	HasMessageWeights    bool
	Multimodal           bool // images, which no format may have yet
	HasTools             bool // tools are declared or called
	HasParallelToolCalls bool // several in one message
	HasReasoning         bool
	Duplicates           int64 // lines that repeat an earlier one byte by byte
	Uncompared           int64 // lines beyond the bound on what is compared
}

// Valid reports whether the file can be used.
func (r *Report) Valid() bool { return r.Errors == 0 }

// Problem is the first rule that a line breaks.
type Problem struct {
	Line   int64  // from 1
	Reason string // the place and what is wrong there
}

// String is the form in which users see it.
func (p Problem) String() string { return fmt.Sprintf("Line %d: %s", p.Line, p.Reason) }

// add counts a problem and keeps it if it is one of the first.
func (r *Report) add(line int64, reason string, most int) {
	r.Errors++
	if len(r.Problems) < most {
		r.Problems = append(r.Problems, Problem{line, reason})
	}
}

// maxCompared bounds the lines whose hashes are kept, 8 bytes each.
const maxCompared = 1 << 20

// Hashes are what is remembered of the good lines of a file. Lines are compared by
// 64-bit hashes: in a million lines a false match comes up once in tens of millions
// of files.
type Hashes struct {
	all  []uint64
	over int64
}

// hashSeed is drawn once, so that the lines of two files can be compared.
var hashSeed = maphash.MakeSeed()

func (h *Hashes) add(line []byte) { h.put(maphash.Bytes(hashSeed, line)) }

func (h *Hashes) put(sum uint64) {
	if len(h.all) >= maxCompared {
		h.over++
		return
	}
	h.all = append(h.all, sum)
}

// finish sorts the hashes and counts those that are there already.
func (h *Hashes) finish() (repeated int64) {
	slices.Sort(h.all)
	for i := 1; i < len(h.all); i++ {
		if h.all[i] == h.all[i-1] {
			repeated++
		}
	}
	return repeated
}

// Shared counts the lines of other that are in h too. Both come from files whose
// Check is done. Lines beyond the bound on what is compared do not count.
func (h *Hashes) Shared(other *Hashes) (n int64) {
	i := 0
	for _, sum := range other.all {
		for i < len(h.all) && h.all[i] < sum {
			i++
		}
		if i < len(h.all) && h.all[i] == sum {
			n++
		}
	}
	return n
}
