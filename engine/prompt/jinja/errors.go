package jinja

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SyntaxError says what in a template's source is wrong and where. Line and
// Column count from 1; Column counts characters.
type SyntaxError struct {
	Line, Column int
	Msg          string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("template line %d, column %d: %s", e.Line, e.Column, e.Msg)
}

// TemplateError is the template's own refusal of its input, made with
// raise_exception.
type TemplateError struct {
	Line    int
	Message string
}

func (e *TemplateError) Error() string { return e.Message }

// RuntimeError is an operation that Python or Jinja2 would have refused too.
// Class is the name of the exception there, such as "TypeError" or
// "UndefinedError".
type RuntimeError struct {
	Line  int
	Class string
	Msg   string
}

func (e *RuntimeError) Error() string {
	return fmt.Sprintf("template line %d: %s: %s", e.Line, e.Class, e.Msg)
}

// LimitError says which budget of a rendering was used up.
type LimitError struct {
	Line  int
	What  string // "steps", "bytes", "output", "string", "range", "depth", "integer"
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("template line %d: more than %d %s in one rendering", e.Line, e.Limit, e.What)
}

// newErr makes a RuntimeError; Render gives it its line.
func newErr(class, format string, args ...any) *RuntimeError {
	return &RuntimeError{Class: class, Msg: fmt.Sprintf(format, args...)}
}

func typeErr(format string, args ...any) *RuntimeError { return newErr("TypeError", format, args...) }

func valueErr(format string, args ...any) *RuntimeError {
	return newErr("ValueError", format, args...)
}

// syntaxAt makes a SyntaxError for a byte offset of src.
func syntaxAt(src string, pos int, format string, args ...any) *SyntaxError {
	pos = min(max(pos, 0), len(src))
	line := strings.Count(src[:pos], "\n") + 1
	start := strings.LastIndexByte(src[:pos], '\n') + 1
	return &SyntaxError{
		Line:   line,
		Column: utf8.RuneCountInString(src[start:pos]) + 1,
		Msg:    fmt.Sprintf(format, args...),
	}
}
