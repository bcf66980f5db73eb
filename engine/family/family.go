package family

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"athanor/engine/family/decoder"
	"athanor/engine/family/llama"
	"athanor/engine/family/qwen"
	"athanor/engine/weights"
)

// What the families share is defined once, in package decoder.
type (
	Decoder          = decoder.Decoder
	GraphOptions     = decoder.GraphOptions
	Graphs           = decoder.Graphs
	Quantization     = decoder.Quantization
	GenerationConfig = decoder.GenerationConfig
	UnsupportedError = decoder.UnsupportedError
	ConfigError      = decoder.ConfigError
)

// The quantisations of GraphOptions.
const (
	None = decoder.None
	Int8 = decoder.Int8
	Int4 = decoder.Int4
)

// Family is one decoder model of a known family. It is immutable and safe for
// concurrent use.
type Family interface {
	// Decoder describes the model.
	Decoder() Decoder
	// Parameters counts the weights, a shared matrix once.
	Parameters() int64
	// Check compares presence, type and shape of every needed weight with the
	// config, without reading data.
	Check(a *weights.Archive) error
	// Graph builds the serving graphs, whose ports decoder.Model.Graph lists,
	// and writes the converted weights through w.
	Graph(a *weights.Archive, opt GraphOptions, w *weights.Writer) (*Graphs, error)
}

// opener describes the model of a folder from its config.json.
type opener = func(fs.FS, *decoder.Config) (*decoder.Model, error)

// architectures lists what Open knows, by the name in config.json.
var architectures = []struct {
	name      string
	modelType string // for configs without "architectures"
	open      opener
}{
	{llama.Architecture, "llama", llama.Open},
	{qwen.Architecture2, "qwen2", qwen.Open2},
	{qwen.Architecture3, "qwen3", qwen.Open3},
}

// Open finds the family of a model folder from its config.json and
// generation_config.json. A folder or an architecture that is not supported
// gives an *UnsupportedError, a wrong config a *ConfigError, a folder that is
// no model at all an error that wraps fs.ErrNotExist.
func Open(fsys fs.FS) (Family, error) {
	if err := otherKind(fsys); err != nil {
		return nil, err
	}
	c, err := decoder.ReadConfig(fsys, "config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withoutConfig(fsys, err)
	}
	if err != nil {
		return nil, err
	}
	names, modelType := c.Strings("architectures"), c.StringOr("model_type", "")
	if c.Err() != nil {
		return nil, c.Err()
	}
	for _, a := range architectures {
		if len(names) > 0 && names[0] == a.name || len(names) == 0 && modelType == a.modelType {
			m, err := a.open(fsys, c)
			if err != nil {
				return nil, err // not m: a nil *Model is no nil Family
			}
			return m, nil
		}
	}
	name := modelType
	if len(names) > 0 {
		name = names[0]
	}
	return nil, &UnsupportedError{What: "architecture", Name: name, Supported: Architectures()}
}

// Architectures lists the supported architectures.
func Architectures() []string {
	var out []string
	for _, a := range architectures {
		out = append(out, a.name)
	}
	slices.Sort(out)
	return out
}

// Generation reads the sampling defaults of generation_config.json.
func Generation(fsys fs.FS) (GenerationConfig, error) { return decoder.Generation(fsys) }

// otherKind recognises folders that hold something else than one decoder by
// the files that only they have.
func otherKind(fsys fs.FS) error {
	for _, k := range []struct{ file, what string }{
		{"model_index.json", "a diffusion pipeline"},
		{"adapter_config.json", "a PEFT adapter without its base model"},
		{"modules.json", "a sentence-transformers embedding model"},
		{"genai_config.json", "an onnxruntime-genai folder"},
	} {
		if _, err := fs.Stat(fsys, k.file); err == nil {
			return &UnsupportedError{What: k.what + " (" + k.file + ")"}
		}
	}
	return nil
}

// withoutConfig names what a folder without config.json holds instead.
func withoutConfig(fsys fs.FS, missing error) error {
	files, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return missing
	}
	for _, f := range files {
		switch name := f.Name(); {
		case strings.HasSuffix(name, ".onnx.json"):
			return &UnsupportedError{What: "a Piper voice (" + name + ")"}
		case strings.HasSuffix(name, ".gguf"):
			return &UnsupportedError{What: "a GGUF file (" + name + ")", Supported: []string{"safetensors with config.json"}}
		}
	}
	for _, f := range files {
		if name := f.Name(); strings.HasSuffix(name, ".onnx") {
			return &UnsupportedError{What: "a lone ONNX file (" + name + ")", Supported: []string{"safetensors with config.json"}}
		}
	}
	return missing
}
