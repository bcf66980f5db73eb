package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size of memory, written as bytes ("8589934592") or with a unit
// ("8GiB", "1.5 GB").
type Bytes int64

// units by their names in lower case. A letter alone is binary, as in most tools
// that limit memory.
var units = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// ParseBytes reads a size: a number, which may have a fraction when a unit
// follows, and a unit in upper or lower case.
func ParseBytes(text string) (Bytes, error) {
	bad := fmt.Errorf("%q is not a size such as 8589934592, 8GiB or 500MB", text)
	s := strings.ToLower(strings.TrimSpace(text))
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
	unit, ok := units[s[len(digits):]]
	if !ok {
		return 0, bad
	}
	digits = strings.TrimRight(digits, " ")
	if strings.Trim(digits, "0123456789.") != "" {
		return 0, bad // no sign, exponent or name of a number
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		if n > math.MaxInt64/unit {
			return 0, fmt.Errorf("%q is larger than any memory", text)
		}
		return Bytes(n * unit), nil
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || unit == 1 {
		return 0, bad
	}
	if v *= float64(unit); v >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is larger than any memory", text)
	}
	return Bytes(v), nil
}

// UnmarshalText reads the notation of ParseBytes, and so does Set.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}

// Set, String and Type make *Bytes the value of a flag.
func (b *Bytes) Set(text string) error { return b.UnmarshalText([]byte(text)) }

// String writes the size in the largest unit that divides it.
func (b *Bytes) String() string {
	n, unit := int64(*b), 0
	names := []string{"", "KiB", "MiB", "GiB", "TiB"}
	for n != 0 && n%1024 == 0 && unit < len(names)-1 {
		n, unit = n/1024, unit+1
	}
	return strconv.FormatInt(n, 10) + names[unit]
}

// Type is the word for the value in the help.
func (b *Bytes) Type() string { return "size" }
