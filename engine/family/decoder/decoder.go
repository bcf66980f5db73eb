package decoder

import (
	"fmt"
	"strings"

	"athanor/engine/nn"
)

// Decoder describes a decoder model. What Common and the families return has
// passed checks: sizes are positive, bounded and fit each other.
type Decoder struct {
	Architecture  string // e.g. "LlamaForCausalLM"
	Vocabulary    int    // V, rows of the embedding, may be more than the tokenizer has
	Hidden        int    // H
	Layers        int
	Heads         int // N
	KVHeads       int // K, divides N
	HeadDim       int // D, a multiple of 8
	FFN           int // F
	ContextLength int // positions that the model was made for

	BOS  int32   // -1 when there is none
	EOS  []int32 // tokens that end a text, possibly none
	Tied bool    // the config says that embedding and output share one matrix

	Epsilon    float64 // of the norms
	Rope       nn.Rope
	QKVBias    bool // biases on the query, key and value projections
	OutputBias bool // bias on the attention's output projection
	MLPBias    bool // biases in the feed-forward layers
	QKNorm     bool // norms over each query and key head
}

// Quantization says how the matrices of a served model are stored.
type Quantization string

// The quantisations: float32, and blocks of 8 or 4 bits.
const (
	None Quantization = "none"
	Int8 Quantization = "int8"
	Int4 Quantization = "int4"
)

// GraphOptions are the choices of a conversion.
type GraphOptions struct {
	Quantization Quantization
	BlockSize    int                     // values per scale, 0 = 32
	KVCapacity   int                     // longest text served, 0 = ContextLength; sizes the rotary tables
	Progress     func(done, total int64) // parameters converted; called from one goroutine at a time; may be nil
}

// UnsupportedError is a model that Athanor knows how to name but not to run.
type UnsupportedError struct {
	What      string   // kind of thing, e.g. "architecture"
	Name      string   // e.g. "MambaForCausalLM"
	Supported []string // what would have been fine, may be empty
}

func (e *UnsupportedError) Error() string {
	msg := e.What
	if e.Name != "" {
		msg += fmt.Sprintf(" %q", e.Name)
	}
	msg += " is not supported"
	if len(e.Supported) > 0 {
		msg += "; supported: " + strings.Join(e.Supported, ", ")
	}
	return msg
}

// ConfigError is a file of a model folder that says something impossible.
type ConfigError struct {
	File    string // e.g. "config.json"
	Field   string // dotted path, "" for the whole file
	Message string
}

func (e *ConfigError) Error() string {
	if e.Field == "" {
		return e.File + ": " + e.Message
	}
	return e.File + ": " + e.Field + ": " + e.Message
}
