package rest

import (
	"bytes"
	"encoding"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"athanor/server/api"
)

// decode reads the JSON object of a request body into req. Names are
// case-sensitive, a name given twice, invalid UTF-8, trailing data and
// nesting over 10,000 levels are refused, and the error names the field.
func decode(body []byte, req any, strict bool) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return api.Invalid("", "the request body is empty, a JSON object is expected")
	}
	if err := json.Unmarshal(body, req, json.RejectUnknownMembers(strict)); err != nil {
		return decodeError(err)
	}
	if kind := jsontext.Value(body).Kind(); kind != '{' { // null fits every type
		return api.Invalid("", "the request body must be a JSON object, got %s", kindName(kind))
	}
	return nil
}

// encode renders a response.
func encode(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }

// decodeError says what is wrong with a body in the client's terms.
func decodeError(err error) error {
	var own *api.Error
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return syntaxError(syntax)
	case !errors.As(err, &semantic):
		return api.Invalid("", "the request body cannot be read: %v", err)
	case errors.As(semantic.Err, &own): // from a type's own UnmarshalJSON
		inner := ""
		if own.Param != nil {
			inner = *own.Param
		}
		e := *own
		return e.WithParam(strings.Trim(dotted(semantic.JSONPointer)+"."+inner, "."))
	}
	param := dotted(semantic.JSONPointer)
	if errors.Is(semantic.Err, json.ErrUnknownName) {
		return api.Invalid(param, "unknown field %s", quoted(param))
	}
	what := param
	if what == "" {
		what = "the request body"
	}
	return api.Invalid(param, "%s %s", what, mismatch(semantic))
}

// mismatch finishes the sentence "field ...".
func mismatch(e *json.SemanticError) string {
	if errors.Is(e.Err, strconv.ErrRange) {
		return "is out of range: " + quoted(string(e.JSONValue))
	}
	var number *strconv.NumError
	custom := e.Err != nil && !errors.Is(e.Err, strconv.ErrSyntax) && !errors.As(e.Err, &number)
	switch {
	case custom && e.GoType != nil && ownText(e.GoType):
		return strings.TrimPrefix(e.Err.Error(), "json: ")
	case e.GoType == nil:
		return "is not valid"
	}
	got := kindName(e.JSONKind)
	if e.JSONKind == '0' && len(e.JSONValue) > 0 && len(e.JSONValue) <= 40 {
		got = string(e.JSONValue)
	}
	return "must be " + expected(e.GoType) + ", got " + got
}

// ownText reports whether t reads JSON by a method of its own.
func ownText(t reflect.Type) bool {
	for _, want := range []reflect.Type{
		reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[json.UnmarshalerFrom](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if t != timeType && (t.Implements(want) || reflect.PointerTo(t).Implements(want)) {
			return true
		}
	}
	return false
}

func syntaxError(e *jsontext.SyntacticError) error {
	param := dotted(e.JSONPointer)
	if errors.Is(e.Err, jsontext.ErrDuplicateName) {
		return api.Invalid(param, "%s is given twice", param)
	}
	if errors.Is(e.Err, io.ErrUnexpectedEOF) {
		param = "" // where a cut body happens to end is no field's fault
	}
	return api.Invalid(param, "the request body is not valid JSON at byte %d: %v", e.ByteOffset, e.Err)
}

// dotted turns a JSON pointer into the path that errors name: messages.0.role.
func dotted(p jsontext.Pointer) string {
	const most = 200 // a client chooses the depth; nobody reads a longer path
	if len(p) > most {
		return ""
	}
	return strings.Join(slices.Collect(p.Tokens()), ".")
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "something else"
}

// expected says in words what a Go type takes.
func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == timeType {
		return "an RFC 3339 time"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a non-negative integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "another type"
}
