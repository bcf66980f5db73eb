package peft

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Names of the two files of an adapter.
const (
	ConfigFile  = "adapter_config.json"
	WeightsFile = "adapter_model.safetensors"
)

// Bounds of what an adapter may ask for.
const (
	maxConfig   = 1 << 20 // bytes
	maxPatterns = 1 << 14 // entries of rank_pattern, alpha_pattern, target_modules
	maxPattern  = 1 << 10 // bytes of one of them
	maxRank     = 1024
	maxAlpha    = 1 << 20
)

// Error is an adapter that cannot be used, in words for the person who brought
// it.
type Error struct {
	File   string
	Field  string // of the config, or the name of a tensor; "" for the whole file
	Reason string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.File + ": " + e.Reason
	}
	return e.File + ": " + e.Field + ": " + e.Reason
}

// description is adapter_config.json as far as it decides what the tensors
// mean.
type description struct {
	Config
	ranks, alphas []override // by module, the first that matches counts
	targets       []string   // names or ends of names; nil when given as a pattern
}

// override is an entry of rank_pattern or alpha_pattern.
type override struct {
	key   string
	match *regexp.Regexp
	value float64
}

// inert fields change nothing about an adapter that is applied as it is: how it
// was made, for which task, and the parameters of what other fields switch on.
var inert = map[string]bool{
	"auto_mapping": true, "base_model_name_or_path": true, "corda_config": true, "eva_config": true, "exclude_modules": true,
	"inference_mode": true, "layers_pattern": true, "layers_to_transform": true, "loftq_config": true,
	"lora_dropout": true, "lora_ga_config": true, "megatron_config": true, "megatron_core": true, "peft_version": true,
	"qalora_group_size": true, "revision": true, "runtime_config": true, "task_type": true,
}

// refused fields change what an adapter computes in ways that are not
// implemented; they may only say that they are off.
var refused = map[string]string{
	"use_dora":                "weight-decomposed adapters (DoRA) are not supported",
	"use_qalora":              "QALoRA adapters are not supported",
	"use_bdlora":              "block-diagonal adapters are not supported",
	"lora_bias":               "biases in the adapter are not supported",
	"modules_to_save":         "whole modules saved beside the adapter are not supported; merge them into the base model",
	"trainable_token_indices": "trained token embeddings are not supported",
	"target_parameters":       "adapters of parameters that are no linear modules are not supported",
	"layer_replication":       "replicated layers are not supported",
	"alora_invocation_tokens": "adapters that start at an invocation are not supported",
	"arrow_config":            "routed adapters are not supported",
	"fan_in_fan_out":          "transposed weights (Conv1D) are not supported",
}

// parseConfig reads adapter_config.json. Fields that it does not know must be
// off: null, false, empty.
func parseConfig(text []byte) (*description, error) {
	if len(text) > maxConfig {
		return nil, &Error{File: ConfigFile, Reason: fmt.Sprintf("longer than %d bytes", maxConfig)}
	}
	fields, _, err := object(text)
	if err != nil {
		return nil, &Error{File: ConfigFile, Reason: "is no JSON object: " + err.Error()}
	}
	c := configReader{fields: fields}
	d := c.read()
	return d, c.err
}

// configReader reads fields and keeps the first error.
type configReader struct {
	fields map[string]jsontext.Value
	err    error
}

func (c *configReader) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = &Error{File: ConfigFile, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
}

func (c *configReader) read() *description {
	if kind := c.text("peft_type"); kind != "LORA" {
		c.fail("peft_type", "%q is not supported; LORA is", kind)
	}
	d := &description{}
	d.BaseModel = c.text("base_model_name_or_path")
	rank := c.number("r", 1, maxRank, 8)
	if rank != math.Trunc(rank) {
		c.fail("r", "must be a whole number, is %g", rank)
	}
	d.Rank = int(rank)
	d.Alpha = c.number("lora_alpha", -maxAlpha, maxAlpha, 8)
	d.Dropout = c.number("lora_dropout", 0, 1, 0)
	d.RSLoRA = c.truth("use_rslora")
	if bias := c.text("bias"); bias != "none" && bias != "" {
		c.fail("bias", "%q is not supported; none is", bias)
	}
	c.start()
	d.targets = c.targets()
	d.ranks = c.patterns("rank_pattern", 1, maxRank)
	d.alphas = c.patterns("alpha_pattern", -maxAlpha, maxAlpha)
	known := []string{"peft_type", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights", "target_modules", "rank_pattern", "alpha_pattern"}
	for _, name := range slices.Sorted(maps.Keys(c.fields)) {
		if inert[name] || slices.Contains(known, name) || off(c.fields[name]) {
			continue
		}
		c.fail(name, "%s", cmp.Or(refused[name], "is not known, so that it cannot be honoured"))
	}
	return d
}

// off reports whether a value says nothing.
func off(v jsontext.Value) bool {
	switch strings.Join(strings.Fields(string(v)), "") {
	case "null", "false", "[]", "{}", `""`:
		return true
	}
	return false
}

func (c *configReader) has(field string) bool {
	v, ok := c.fields[field]
	return ok && v.Kind() != 'n'
}

func (c *configReader) text(field string) (s string) {
	if c.has(field) && json.Unmarshal(c.fields[field], &s) != nil {
		c.fail(field, "must be a text, is %s", brief(c.fields[field]))
	}
	return s
}

func (c *configReader) truth(field string) (b bool) {
	if c.has(field) && json.Unmarshal(c.fields[field], &b) != nil {
		c.fail(field, "must be true or false, is %s", brief(c.fields[field]))
	}
	return b
}

func (c *configReader) number(field string, lo, hi, fallback float64) float64 {
	if !c.has(field) {
		return fallback
	}
	v, ok := number(c.fields[field], lo, hi)
	if !ok {
		c.fail(field, "must be a number from %g to %g, is %s", lo, hi, brief(c.fields[field]))
	}
	return v
}

func number(text jsontext.Value, lo, hi float64) (float64, bool) {
	v, err := strconv.ParseFloat(string(text), 64)
	return v, text.Kind() == '0' && err == nil && v >= lo && v <= hi
}

// start refuses adapters that started from a changed base (PiSSA, OLoRA and
// others take their first values out of its weights): beside the base as it was
// they are wrong. Trainers that convert such an adapter say so with true.
func (c *configReader) start() {
	const field = "init_lora_weights"
	v := c.fields[field]
	if !c.has(field) || v.Kind() == 't' || v.Kind() == 'f' {
		return
	}
	switch name := c.text(field); name {
	case "gaussian", "orthogonal", "eva":
	default:
		c.fail(field, "an adapter that started from %s changes its base model and is not supported; convert it to a plain one", brief(v))
	}
}

// targets is the list of target_modules. A pattern, "all-linear" among them, is
// not evaluated: the tensors of the file say which modules it matched.
func (c *configReader) targets() []string {
	v := c.fields["target_modules"]
	if !c.has("target_modules") || v.Kind() == '"' {
		return nil
	}
	var list []string
	if err := json.Unmarshal(v, &list); err != nil || len(list) > maxPatterns {
		c.fail("target_modules", "must be a text or a list of at most %d texts, is %s", maxPatterns, brief(v))
		return nil
	}
	return list
}

// patterns reads rank_pattern or alpha_pattern: a map from the end of a
// module's name, as a regular expression, to a number.
func (c *configReader) patterns(field string, lo, hi float64) []override {
	if !c.has(field) {
		return nil
	}
	values, order, err := object(c.fields[field])
	if err != nil || len(order) > maxPatterns {
		c.fail(field, "must be an object of at most %d entries, is %s", maxPatterns, brief(c.fields[field]))
		return nil
	}
	var out []override
	for _, key := range order {
		value, ok := number(values[key], lo, hi)
		if !ok || field == "rank_pattern" && value != math.Trunc(value) {
			c.fail(field, "%q must be a number from %g to %g, is %s", key, lo, hi, brief(values[key]))
		}
		if len(key) > maxPattern {
			c.fail(field, "a key is longer than %d bytes", maxPattern)
			return nil
		}
		match, err := regexp.Compile(`^(?:.*\.)?(?:` + key + `)$`)
		if err != nil {
			c.fail(field, "the pattern %s is not supported: %v", brief([]byte(key)), err)
			return nil
		}
		out = append(out, override{key, match, value})
	}
	return out
}

// find is the value of the first pattern that matches the module.
func find(list []override, module string) (float64, bool) {
	for _, o := range list {
		if o.match.MatchString(module) {
			return o.value, true
		}
	}
	return 0, false
}

// object splits a JSON object into its fields and their order. Fields that
// occur twice are an error.
func object(text []byte) (map[string]jsontext.Value, []string, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	if tok, err := dec.ReadToken(); err != nil {
		return nil, nil, err
	} else if tok.Kind() != '{' {
		return nil, nil, fmt.Errorf("it begins with %s", tok)
	}
	fields := map[string]jsontext.Value{}
	var order []string
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, nil, err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, nil, err
		}
		fields[key], order = value.Clone(), append(order, key)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, nil, fmt.Errorf("there is text after its end")
	}
	return fields, order, nil
}

// brief shortens a value for an error message.
func brief(text []byte) string {
	s := strings.Join(strings.Fields(string(text)), " ")
	if runes := []rune(s); len(runes) > 40 {
		return string(runes[:40]) + "..."
	}
	return s
}
