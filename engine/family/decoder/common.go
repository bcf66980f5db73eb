package decoder

import (
	"io/fs"

	"athanor/engine/nn"
)

// Bounds of what a config may ask for.
const (
	maxLayers     = 1000
	maxHidden     = 1 << 17
	maxFFN        = 1 << 20
	maxHeads      = 4096
	maxHeadDim    = 1024
	maxVocabulary = 4 << 20
	maxContext    = 16 << 20
)

// Defaults are what a family assumes for fields that its configs leave out.
type Defaults struct {
	HeadDim int // 0 = hidden_size / num_attention_heads
	Tied    bool
	Epsilon float64
}

// Common reads the fields that all Llama-shaped decoders share from
// config.json and the special tokens from generation_config.json, which wins,
// or config.json. The caller adds the switches of its family.
func Common(fsys fs.FS, c *Config, architecture string, def Defaults) (Decoder, error) {
	d := Decoder{
		Architecture:  architecture,
		Vocabulary:    c.Int("vocab_size", 1, maxVocabulary),
		Hidden:        c.Int("hidden_size", 1, maxHidden),
		Layers:        c.Int("num_hidden_layers", 1, maxLayers),
		Heads:         c.Int("num_attention_heads", 1, maxHeads),
		FFN:           c.Int("intermediate_size", 1, maxFFN),
		ContextLength: c.Int("max_position_embeddings", 1, maxContext),
		Tied:          c.BoolOr("tie_word_embeddings", def.Tied),
		Epsilon:       c.FloatOr("rms_norm_eps", 0, 1, def.Epsilon),
	}
	d.KVHeads = c.IntOr("num_key_value_heads", 1, maxHeads, d.Heads)
	if act := c.StringOr("hidden_act", "silu"); act != "silu" && act != "swish" {
		c.Refuse("activation", act, "silu")
	}
	if c.Has("quantization_config") {
		c.Refuse("quantised checkpoint", c.Object("quantization_config").StringOr("quant_method", ""), "float32, float16 or bfloat16 weights")
	}
	if c.Err() != nil {
		return Decoder{}, c.Err()
	}
	d.headDim(c, def.HeadDim)
	if d.Heads%d.KVHeads != 0 {
		c.Fail("num_key_value_heads", "%d does not divide num_attention_heads, which is %d", d.KVHeads, d.Heads)
	}
	d.Rope = rope(c, &d)
	if err := d.tokens(fsys, c); err != nil {
		return Decoder{}, err
	}
	return d, c.Err()
}

func (d *Decoder) headDim(c *Config, fallback int) {
	if fallback == 0 {
		if fallback = d.Hidden / d.Heads; !c.Has("head_dim") && d.Hidden%d.Heads != 0 {
			c.Fail("hidden_size", "%d is no multiple of num_attention_heads, which is %d, and head_dim is not given", d.Hidden, d.Heads)
			return
		}
	}
	d.HeadDim = c.IntOr("head_dim", 1, maxHeadDim, fallback)
	if d.HeadDim%8 != 0 && c.Err() == nil {
		c.Fail("head_dim", "%d is no multiple of 8, which the attention kernel needs", d.HeadDim)
	}
	wholeHead(c)
}

func wholeHead(c *Config) {
	if f := c.FloatOr("partial_rotary_factor", 0, 1, 1); f != 1 {
		c.Refuse("partial rotary embedding", "")
	}
}

// tokens reads beginning and end of text: generation_config.json first, since
// chat models list there all tokens that end a turn, then config.json.
func (d *Decoder) tokens(fsys fs.FS, c *Config) error {
	gen, err := optional(fsys, generationFile)
	if err != nil {
		return err
	}
	d.BOS = -1
	for _, from := range []*Config{c, gen} {
		if bos := from.Tokens("bos_token_id", d.Vocabulary); len(bos) > 0 {
			d.BOS = bos[0]
		}
		if eos := from.Tokens("eos_token_id", d.Vocabulary); len(eos) > 0 {
			d.EOS = eos
		}
	}
	return gen.Err()
}

// rope reads the rotary parameters: rope_parameters of new configs, or
// rope_theta and rope_scaling.
func rope(c *Config, d *Decoder) nn.Rope {
	theta := func(from *Config, fallback float64) float64 { return from.FloatOr("rope_theta", 1, 1e12, fallback) }
	r := nn.Rope{Theta: theta(c, 10000), Dim: d.HeadDim}
	s := c.Object("rope_parameters")
	if s != nil {
		r.Theta = theta(s, r.Theta)
	} else if s = c.Object("rope_scaling"); s == nil {
		return r
	}
	if s.Has("full_attention") || s.Has("sliding_attention") {
		c.Refuse("rotary parameters by layer type", "")
	}
	wholeHead(s)
	const most = maxContext
	switch kind := s.StringOr("rope_type", s.StringOr("type", "default")); kind {
	case "default":
	case "linear":
		r.Scaling = nn.RopeScaling{Kind: nn.LinearScaling, Factor: s.FloatOr("factor", 1, most, 1)}
	case "dynamic":
		// The rule changes nothing up to the length that the model was trained
		// for, which is what is served.
		d.ContextLength = min(d.ContextLength, s.IntOr("original_max_position_embeddings", 1, most, d.ContextLength))
	case "llama3":
		r.Scaling = nn.RopeScaling{
			Kind: nn.Llama3Scaling, Factor: s.FloatOr("factor", 1, most, 8),
			Low: s.FloatOr("low_freq_factor", 1e-3, most, 1), High: s.FloatOr("high_freq_factor", 1e-3, most, 4),
			Original: s.IntOr("original_max_position_embeddings", 1, most, 8192),
		}
		if s.Err() == nil && r.Scaling.High <= r.Scaling.Low {
			s.Fail("high_freq_factor", "%g is not above low_freq_factor, which is %g", r.Scaling.High, r.Scaling.Low)
		}
	default:
		c.Refuse("rotary scaling", kind, "default", "linear", "dynamic", "llama3")
	}
	return r
}

// RefuseWindow refuses a model whose attention looks back over fewer positions
// than its context has; used says that some layer does so.
func RefuseWindow(c *Config, d Decoder, used bool) {
	if w := c.IntOr("sliding_window", 0, maxContext, 0); used && c.Has("sliding_window") && w < d.ContextLength {
		c.Refuse("sliding-window attention", "", "full attention")
	}
}

// RefuseLayers refuses layer types other than full attention and those listed.
func RefuseLayers(c *Config, also ...string) {
	for _, t := range c.Strings("layer_types") {
		known := t == "full_attention"
		for _, a := range also {
			known = known || t == a
		}
		if !known {
			c.Refuse("layer type", t, "full_attention")
		}
	}
}
