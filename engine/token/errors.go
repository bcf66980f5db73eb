package token

import (
	"errors"
	"fmt"
)

// ErrUnsupported is wrapped by Load when the file names a component, an option
// or a pattern that this package does not implement. The text says which.
var ErrUnsupported = errors.New("unsupported tokenizer component")

// ErrMalformed is wrapped by Load when the file contradicts itself or breaks
// its format: a merge of unknown tokens, an id out of range, a bad offset.
var ErrMalformed = errors.New("malformed tokenizer")

// ErrNoTokenizer is wrapped by LoadDir when the directory has no tokenizer that
// can be read; the text lists the files that were looked for.
var ErrNoTokenizer = errors.New("no tokenizer found")

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrUnsupported)
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrMalformed)
}
