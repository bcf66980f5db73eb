package resource

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrInvalidName is wrapped by every error about a name; the text around it says
// what is wrong and is fit for the person who chose the name.
var ErrInvalidName = errors.New("invalid name")

const (
	maxName      = 100 // characters of a display name
	maxSlug      = 63  // bytes, the limit of a DNS label
	maxModelName = 200 // bytes
	maxParts     = 4   // parts of a model name between slashes
)

// ValidateName checks a name meant for people: 1 to 100 printable characters, not
// beginning or ending with a space.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrInvalidName)
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("%w: %d characters, at most %d are allowed", ErrInvalidName, utf8.RuneCountInString(name), maxName)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%w: %q begins or ends with a space", ErrInvalidName, name)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%w: %q holds the unprintable character %U", ErrInvalidName, name, r)
		}
	}
	return nil
}

// ValidateSlug checks a DNS label: 1 to 63 of a-z, 0-9 and "-", beginning and
// ending with a letter or digit.
func ValidateSlug(slug string) error {
	if slug == "" {
		return fmt.Errorf("%w: the slug is empty", ErrInvalidName)
	}
	if len(slug) > maxSlug {
		return fmt.Errorf("%w: a slug of %d bytes, at most %d are allowed", ErrInvalidName, len(slug), maxSlug)
	}
	for _, r := range slug {
		if !isLower(r) && !isDigit(r) && r != '-' {
			return fmt.Errorf("%w: slug %q holds %q, only a-z, 0-9 and - are allowed", ErrInvalidName, slug, r)
		}
	}
	if slug[0] == '-' || slug[len(slug)-1] == '-' {
		return fmt.Errorf("%w: slug %q begins or ends with -", ErrInvalidName, slug)
	}
	return nil
}

// ValidateModelName checks the name under which a model is requested: up to four
// parts joined by "/", each of letters, digits, ".", "_" and "-", beginning with a
// letter or digit. ":" is kept free: it separates an endpoint from its adapter.
func ValidateModelName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: the model name is empty", ErrInvalidName)
	}
	if len(name) > maxModelName {
		return fmt.Errorf("%w: a model name of %d bytes, at most %d are allowed", ErrInvalidName, len(name), maxModelName)
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxParts {
		return fmt.Errorf("%w: model name %q has %d parts between slashes, at most %d are allowed", ErrInvalidName, name, len(parts), maxParts)
	}
	for _, part := range parts {
		if err := validatePart(part); err != nil {
			return fmt.Errorf("%w: model name %q: %w", ErrInvalidName, name, err)
		}
	}
	return nil
}

func validatePart(part string) error {
	if part == "" {
		return errors.New("a part between slashes is empty")
	}
	for i, r := range part {
		alnum := isLower(r) || isDigit(r) || 'A' <= r && r <= 'Z'
		if i == 0 && !alnum {
			return fmt.Errorf("%q must begin with a letter or digit", part)
		}
		if !alnum && r != '.' && r != '_' && r != '-' {
			return fmt.Errorf("%q is not allowed, only letters, digits, \".\", \"_\" and \"-\" are", r)
		}
	}
	return nil
}

func isLower(r rune) bool { return 'a' <= r && r <= 'z' }
func isDigit(r rune) bool { return '0' <= r && r <= '9' }
