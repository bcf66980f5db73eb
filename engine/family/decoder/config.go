package decoder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const maxConfig = 16 << 20 // bytes of a config file

// Config reads the fields of a JSON file. The first thing wrong with a field
// is kept and given by Err; readers return zero values after it.
type Config struct {
	file   string
	prefix string // of nested objects, "rope_scaling."
	fields map[string]jsontext.Value
	err    *error
}

// ReadConfig reads a JSON object from a file of at most 16 MiB. Fields that
// occur twice are refused.
func ReadConfig(fsys fs.FS, file string) (*Config, error) {
	text, err := readFile(fsys, file)
	if err != nil {
		return nil, err
	}
	c := &Config{file: file, err: new(error)}
	if err := json.Unmarshal(text, &c.fields); err != nil {
		return nil, &ConfigError{File: file, Message: "not a JSON object: " + err.Error()}
	}
	return c, nil
}

// readFile reads a regular file of bounded size.
func readFile(fsys fs.FS, file string) ([]byte, error) {
	// Stat first: opening a FIFO would wait for its writer.
	info, err := fs.Stat(fsys, file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if !info.Mode().IsRegular() {
		return nil, &ConfigError{File: file, Message: "not a regular file"}
	}
	f, err := fsys.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(text) > maxConfig {
		return nil, &ConfigError{File: file, Message: fmt.Sprintf("longer than %d bytes", maxConfig)}
	}
	return text, nil
}

// Err is the first error of all reads so far, also of nested objects.
func (c *Config) Err() error { return *c.err }

// Fail records an error about a field unless there is one already.
func (c *Config) Fail(field, format string, args ...any) {
	c.fail(&ConfigError{File: c.file, Field: c.prefix + field, Message: fmt.Sprintf(format, args...)})
}

// Refuse records that what a field asks for is not supported.
func (c *Config) Refuse(what, name string, supported ...string) {
	c.fail(&UnsupportedError{What: what, Name: name, Supported: supported})
}

func (c *Config) fail(err error) {
	if *c.err == nil {
		*c.err = err
	}
}

// Has says whether a field is there and not null.
func (c *Config) Has(field string) bool {
	v, ok := c.fields[field]
	return ok && v.Kind() != 'n'
}

// Int is a required whole number from lo to hi.
func (c *Config) Int(field string, lo, hi int) int {
	if !c.Has(field) {
		c.Fail(field, "is missing")
		return 0
	}
	return c.IntOr(field, lo, hi, 0)
}

// IntOr is a whole number from lo to hi, or fallback when the field is absent.
func (c *Config) IntOr(field string, lo, hi, fallback int) int {
	if !c.Has(field) {
		return fallback
	}
	text := string(c.fields[field])
	// Some exporters write 8192.0; anything with a fraction is refused.
	v, err := strconv.ParseFloat(text, 64)
	if c.fields[field].Kind() != '0' || err != nil || v != math.Trunc(v) || v < float64(lo) || v > float64(hi) {
		c.Fail(field, "must be a whole number from %d to %d, is %s", lo, hi, brief(text))
		return 0
	}
	return int(v)
}

// FloatOr is a number from lo to hi, or fallback when the field is absent.
func (c *Config) FloatOr(field string, lo, hi, fallback float64) float64 {
	if !c.Has(field) {
		return fallback
	}
	text := string(c.fields[field])
	v, err := strconv.ParseFloat(text, 64)
	if c.fields[field].Kind() != '0' || err != nil || v < lo || v > hi {
		c.Fail(field, "must be a number from %g to %g, is %s", lo, hi, brief(text))
		return 0
	}
	return v
}

// BoolOr is a truth value, or fallback when the field is absent.
func (c *Config) BoolOr(field string, fallback bool) bool {
	if !c.Has(field) {
		return fallback
	}
	v := fallback
	c.decode(field, "true or false", &v)
	return v
}

// StringOr is a text, or fallback when the field is absent.
func (c *Config) StringOr(field, fallback string) string {
	if !c.Has(field) {
		return fallback
	}
	v := fallback
	c.decode(field, "a text", &v)
	return v
}

// Strings is a list of texts, nil when the field is absent.
func (c *Config) Strings(field string) []string {
	var v []string
	if c.Has(field) {
		c.decode(field, "a list of texts", &v)
	}
	return v
}

// Tokens is a token id or a list of them, each below vocabulary; nil when the
// field is absent. The id -1 stands for none.
func (c *Config) Tokens(field string, vocabulary int) []int32 {
	if !c.Has(field) {
		return nil
	}
	var ids []int64
	if c.fields[field].Kind() == '[' {
		c.decode(field, "a token id or a list of them", &ids)
	} else {
		ids = []int64{0}
		c.decode(field, "a token id or a list of them", &ids[0])
	}
	if len(ids) > 1024 {
		c.Fail(field, "lists more than 1024 tokens")
		return nil
	}
	out := []int32{}
	for _, id := range ids {
		if id == -1 {
			continue
		}
		if id < 0 || id >= int64(vocabulary) {
			c.Fail(field, "token %d is outside of the vocabulary of %d", id, vocabulary)
			return nil
		}
		out = append(out, int32(id))
	}
	return out
}

// Object is a nested object, nil when the field is absent.
func (c *Config) Object(field string) *Config {
	if !c.Has(field) {
		return nil
	}
	nested := &Config{file: c.file, prefix: c.prefix + field + ".", err: c.err}
	c.decode(field, "an object", &nested.fields)
	return nested
}

func (c *Config) decode(field, want string, into any) {
	if err := json.Unmarshal(c.fields[field], into); err != nil {
		c.Fail(field, "must be %s, is %s", want, brief(string(c.fields[field])))
	}
}

// brief shortens a value for an error message.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 40 {
		return string(runes[:40]) + "..."
	}
	return text
}

// optional reads a config file that may be absent: then it gives an empty one.
func optional(fsys fs.FS, file string) (*Config, error) {
	c, err := ReadConfig(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Config{file: file, err: new(error)}, nil
	}
	return c, err
}
