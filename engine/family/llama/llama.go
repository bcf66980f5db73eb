package llama

import (
	"io/fs"

	"athanor/engine/family/decoder"
)

// Architecture is the name in config.json.
const Architecture = "LlamaForCausalLM"

// Open describes the model of a folder whose config.json is c.
func Open(fsys fs.FS, c *decoder.Config) (*decoder.Model, error) {
	d, err := decoder.Common(fsys, c, Architecture, decoder.Defaults{Epsilon: 1e-6})
	if err != nil {
		return nil, err
	}
	// The attention's bias is on all four projections here.
	d.QKVBias = c.BoolOr("attention_bias", false)
	d.OutputBias = d.QKVBias
	d.MLPBias = c.BoolOr("mlp_bias", false)
	if c.BoolOr("rope_interleaved", false) {
		c.Refuse("rotary embedding of interleaved pairs", "")
	}
	decoder.RefuseLayers(c)
	if c.Err() != nil {
		return nil, c.Err()
	}
	return decoder.New(d), nil
}
