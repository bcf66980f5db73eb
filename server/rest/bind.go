package rest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"athanor/server/api"
)

// binder fills a request struct. Each exported field of the struct carries one
// of the tags `json`, `path` or `query`; the latter two go with `json:"-"`, so
// that a body can never set them. Fields of path and query are strings,
// booleans, integers, floats, times (RFC 3339 or Unix seconds), pointers to
// these (nil when absent), or, in the query, slices of strings, which come as
// a=1,2 or a=1&a=2 or a[]=1.
type binder struct {
	path, query []field
	body        bool // there are json fields
}

type field struct {
	name  string
	index []int
}

func newBinder(t reflect.Type, params []string) (*binder, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("request type %s is not a struct", t)
	}
	b := &binder{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			if f.Anonymous && f.Type.Kind() == reflect.Pointer {
				return nil, fmt.Errorf("request type %s embeds a pointer", t)
			}
			continue
		}
		if err := b.add(f, params); err != nil {
			return nil, fmt.Errorf("field %s of %s: %w", f.Name, t, err)
		}
	}
	for _, p := range params {
		if !slices.ContainsFunc(b.path, func(f field) bool { return f.name == p }) {
			return nil, fmt.Errorf("request type %s has no field for the path parameter %s", t, p)
		}
	}
	return b, nil
}

func (b *binder) add(f reflect.StructField, params []string) error {
	path, query, body := f.Tag.Get("path"), f.Tag.Get("query"), f.Tag.Get("json")
	switch {
	case path == "" && query == "" && body == "":
		return errors.New("has neither a json nor a path nor a query tag")
	case path == "" && query == "":
		b.body = b.body || body != "-"
		return nil
	case body != "-":
		return errors.New(`a path or query field needs json:"-"`)
	case path != "" && query != "":
		return errors.New("is both path and query")
	case path != "" && !slices.Contains(params, path):
		return fmt.Errorf("the path has no parameter %s", path)
	case !bindable(f.Type) || path != "" && f.Type.Kind() == reflect.Slice:
		return fmt.Errorf("type %s cannot be bound", f.Type)
	case path != "":
		b.path = append(b.path, field{path, f.Index})
	default:
		b.query = append(b.query, field{query, f.Index})
	}
	return nil
}

var timeType = reflect.TypeFor[time.Time]()

func bindable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	} else if t.Kind() == reflect.Slice {
		return t.Elem().Kind() == reflect.String
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return true
	}
	return t == timeType
}

// setPath fills the path's fields from the values by name.
func (b *binder) setPath(req reflect.Value, value func(name string) string) error {
	for _, f := range b.path {
		if err := setScalar(req.FieldByIndex(f.index), f.name, value(f.name)); err != nil {
			return err
		}
	}
	return nil
}

// setQuery fills the query's fields. In strict mode a name that no field has
// is an error.
func (b *binder) setQuery(req reflect.Value, query []pair, strict bool) error {
	for i, p := range query {
		name := strings.TrimSuffix(p.name, "[]")
		at := slices.IndexFunc(b.query, func(f field) bool { return f.name == name })
		if at < 0 {
			if strict {
				return api.Invalid(name, "unknown query parameter %s", quoted(name))
			}
			continue
		}
		v := req.FieldByIndex(b.query[at].index)
		if v.Kind() == reflect.Slice {
			for s := range strings.SplitSeq(p.value, ",") {
				if s != "" {
					v.Set(reflect.Append(v, reflect.ValueOf(s).Convert(v.Type().Elem())))
				}
			}
			continue
		}
		if slices.ContainsFunc(query[:i], func(o pair) bool { return strings.TrimSuffix(o.name, "[]") == name && o.value != p.value }) {
			return api.Invalid(name, "%s is given twice", name)
		}
		if err := setScalar(v, name, p.value); err != nil {
			return err
		}
	}
	return nil
}

// pair is one name=value of a query.
type pair struct{ name, value string }

func setScalar(v reflect.Value, name, s string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	var err error
	switch {
	case v.Type() == timeType:
		var t time.Time
		t, err = parseTime(s)
		v.Set(reflect.ValueOf(t))
	case v.Kind() == reflect.String:
		v.SetString(s)
	case v.Kind() == reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(s)
		v.SetBool(b)
	case v.Kind() == reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(s, 64)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			err = strconv.ErrRange
		}
		v.SetFloat(f)
	default:
		var n int64
		n, err = strconv.ParseInt(s, 10, v.Type().Bits())
		v.SetInt(n)
	}
	if err != nil {
		return api.Invalid(name, "%s must be %s, got %s", name, expected(v.Type()), quoted(s))
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(n, 0).UTC(), nil
	}
	return time.Parse(time.RFC3339, s)
}

// quoted shows a client's own text in a message, cut to a readable length.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "..."
	}
	return strconv.Quote(s)
}
