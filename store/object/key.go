package object

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxKey      = 512 // bytes
	maxSegment  = 200 // bytes; a file name may have 255
	maxSegments = 16
)

// ValidateKey checks a key: at most 512 bytes of UTF-8, in at most 16 segments
// joined by "/" of at most 200 bytes each. No segment is empty, "." or "..", and no
// character is a control character or a backslash. The key does not begin with a
// dot. The error wraps ErrInvalidKey and says what is wrong.
func ValidateKey(key string) error {
	if err := validateChars(key); err != nil {
		return err
	}
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	}
	segments := strings.Split(key, "/")
	if len(segments) > maxSegments {
		return fmt.Errorf("%w: %d segments, at most %d are allowed", ErrInvalidKey, len(segments), maxSegments)
	}
	for _, s := range segments {
		switch {
		case s == "" || s == "." || s == "..":
			return fmt.Errorf("%w: %q has the segment %q", ErrInvalidKey, key, s)
		case len(s) > maxSegment:
			return fmt.Errorf("%w: a segment of %d bytes, at most %d are allowed", ErrInvalidKey, len(s), maxSegment)
		}
	}
	return nil
}

// validatePrefix checks what List takes: the beginning of a key, or nothing.
func validatePrefix(prefix string) error {
	if err := validateChars(prefix); err != nil {
		return err
	}
	for i, s := range strings.Split(prefix, "/") {
		last := i == strings.Count(prefix, "/")
		if s == ".." || !last && (s == "" || s == ".") {
			return fmt.Errorf("%w: prefix %q has the segment %q", ErrInvalidKey, prefix, s)
		}
	}
	return nil
}

// validateChars checks what holds for keys and prefixes alike.
func validateChars(s string) error {
	switch {
	case len(s) > maxKey:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalidKey, len(s), maxKey)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %q is not valid UTF-8", ErrInvalidKey, s)
	case strings.HasPrefix(s, "."):
		return fmt.Errorf("%w: %q begins with a dot", ErrInvalidKey, s)
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\\' {
			return fmt.Errorf("%w: %q holds the character %U", ErrInvalidKey, s, r)
		}
	}
	return nil
}
