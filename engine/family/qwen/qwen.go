package qwen

import (
	"io/fs"

	"athanor/engine/family/decoder"
)

// The architectures' names in config.json.
const (
	Architecture2 = "Qwen2ForCausalLM"
	Architecture3 = "Qwen3ForCausalLM"
)

// Open2 describes a Qwen2 model: Llama with biases on query, key and value.
func Open2(fsys fs.FS, c *decoder.Config) (*decoder.Model, error) {
	d, err := decoder.Common(fsys, c, Architecture2, decoder.Defaults{Epsilon: 1e-6})
	if err != nil {
		return nil, err
	}
	d.QKVBias = true
	return finish(c, d)
}

// Open3 describes a Qwen3 model: Llama with a norm over each query and key
// head, and heads whose size is not hidden/heads.
func Open3(fsys fs.FS, c *decoder.Config) (*decoder.Model, error) {
	d, err := decoder.Common(fsys, c, Architecture3, decoder.Defaults{HeadDim: 128, Epsilon: 1e-6})
	if err != nil {
		return nil, err
	}
	d.QKNorm = true
	d.QKVBias = c.BoolOr("attention_bias", false)
	d.OutputBias = d.QKVBias
	return finish(c, d)
}

// finish refuses windows that are really used: by layers from
// max_window_layers on, when use_sliding_window says so.
func finish(c *decoder.Config, d decoder.Decoder) (*decoder.Model, error) {
	windowed := c.IntOr("max_window_layers", 0, 1<<20, 0) < d.Layers
	if types := c.Strings("layer_types"); len(types) > 0 {
		windowed = false
		for _, t := range types {
			windowed = windowed || t == "sliding_attention"
		}
	}
	decoder.RefuseWindow(c, d, windowed && c.BoolOr("use_sliding_window", false))
	decoder.RefuseLayers(c, "sliding_attention")
	if c.Err() != nil {
		return nil, c.Err()
	}
	return decoder.New(d), nil
}
