package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// strMethod is a method of str.
type strMethod struct {
	params []string
	need   int
	markup bool // on Markup: escapes its arguments and returns Markup
	fn     func(in *interp, s Str, a []Value) Value
	raw    func(in *interp, s Str, a *args) Value // instead of fn: any arguments
}

var strMethods map[string]strMethod

func init() {
	none := []string{}
	chars := []string{"chars"}
	fill := []string{"width", "fillchar"}
	sub := []string{"sub", "start", "end"}
	split := []string{"sep", "maxsplit"}
	m := map[string]strMethod{
		"capitalize":   {none, 0, true, func(in *interp, s Str, _ []Value) Value { return capitalize(in, s) }, nil},
		"casefold":     {none, 0, false, func(in *interp, s Str, _ []Value) Value { return s.mapRuns(in, cases.Fold().String) }, nil},
		"center":       {fill, 1, true, padMethod("center"), nil},
		"count":        {sub, 1, false, countMethod, nil},
		"endswith":     {[]string{"suffix", "start", "end"}, 1, false, affixMethod(strings.HasSuffix), nil},
		"expandtabs":   {[]string{"tabsize"}, 0, true, expandTabs, nil},
		"find":         {sub, 1, false, findMethod(strings.Index, false), nil},
		"format":       {nil, 0, false, nil, func(in *interp, s Str, a *args) Value { return in.format(s, a) }},
		"index":        {sub, 1, false, findMethod(strings.Index, true), nil},
		"join":         {[]string{"iterable"}, 1, false, joinMethod, nil},
		"ljust":        {fill, 1, true, padMethod("ljust"), nil},
		"lower":        {none, 0, true, func(in *interp, s Str, _ []Value) Value { return lower(in, s) }, nil},
		"lstrip":       {chars, 0, true, stripMethod(true, false), nil},
		"partition":    {[]string{"sep"}, 1, true, partitionMethod(strings.Index, false), nil},
		"removeprefix": {[]string{"prefix"}, 1, false, removePrefix, nil},
		"removesuffix": {[]string{"suffix"}, 1, false, removeSuffix, nil},
		"replace":      {[]string{"old", "new", "count"}, 2, true, replaceMethod, nil},
		"rfind":        {sub, 1, false, findMethod(strings.LastIndex, false), nil},
		"rindex":       {sub, 1, false, findMethod(strings.LastIndex, true), nil},
		"rjust":        {fill, 1, true, padMethod("rjust"), nil},
		"rpartition":   {[]string{"sep"}, 1, true, partitionMethod(strings.LastIndex, true), nil},
		"rsplit":       {split, 0, false, splitMethod(true), nil},
		"rstrip":       {chars, 0, true, stripMethod(false, true), nil},
		"split":        {split, 0, false, splitMethod(false), nil},
		"splitlines":   {[]string{"keepends"}, 0, false, splitLinesMethod, nil},
		"startswith":   {[]string{"prefix", "start", "end"}, 1, false, affixMethod(strings.HasPrefix), nil},
		"strip":        {chars, 0, true, stripMethod(true, true), nil},
		"swapcase":     {none, 0, true, func(in *interp, s Str, _ []Value) Value { return s.mapRuns(in, swapCase) }, nil},
		"title":        {none, 0, true, titleMethod, nil},
		"upper":        {none, 0, true, func(in *interp, s Str, _ []Value) Value { return upper(in, s) }, nil},
		"zfill":        {[]string{"width"}, 1, true, zfill, nil},
	}
	for name, is := range charTests {
		m[name] = strMethod{none, 0, false, func(in *interp, s Str, _ []Value) Value {
			in.scan(len(s.text))
			return is(s.text)
		}, nil}
	}
	strMethods = m
}

func (in *interp) callStrMethod(s Str, name string, m strMethod, a *args) Value {
	in.scan(len(s.text))
	in.tick(len(s.runs))
	if m.raw != nil {
		return m.raw(in, s, a)
	}
	bound := a.bind(name, m.need, m.params...)
	if s.safe && m.markup {
		for i, v := range bound {
			if arg, ok := v.(Str); ok {
				bound[i] = escape(in, arg)
			}
		}
		if out, ok := m.fn(in, s, bound).(Str); ok {
			out.safe = true
			return out
		}
	}
	return m.fn(in, s, bound)
}

func upper(in *interp, s Str) Str { return s.mapRuns(in, cases.Upper(language.Und).String) }

func lower(in *interp, s Str) Str { return s.mapRuns(in, cases.Lower(language.Und).String) }

// capitalize makes the first character title case and the others lower case.
func capitalize(in *interp, s Str) Str {
	if s.text == "" {
		return s
	}
	n := runeLen(s.text)
	title := s.sub(0, n).mapRuns(in, cases.Title(language.Und).String)
	out := concat(in, title, lower(in, s.sub(n, len(s.text))))
	out.safe = s.safe
	return out
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

// titleMethod is str.title: a cased letter after something else is title case.
func titleMethod(in *interp, s Str, _ []Value) Value {
	letter := false
	return s.mapRuns(in, func(text string) string {
		return strings.Map(func(r rune) rune {
			was := letter
			letter = unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r)
			if was {
				return unicode.ToLower(r)
			}
			return unicode.ToTitle(r)
		}, text)
	})
}

func padMethod(how string) func(*interp, Str, []Value) Value {
	return func(in *interp, s Str, a []Value) Value {
		fill := Trusted(" ")
		if a[1] != absent {
			fill = mustStr(a[1], how)
		}
		if utf8.RuneCountInString(fill.text) != 1 {
			panic(typeErr("The fill character must be exactly one character long"))
		}
		return in.pad(s, how, mustIndex(a[0]), fill)
	}
}

// pad fills s up to width characters.
func (in *interp) pad(s Str, how string, width int64, fill Str) Str {
	n := int64(s.length(in))
	if width <= n {
		return s
	}
	left, right := int64(0), width-n
	switch how {
	case "rjust":
		left, right = right, 0
	case "center": // CPython puts the odd blank left if both are odd
		left = right/2 + (right & width & 1)
		right -= left
	}
	out := concat(in, repeat(in, fill, left), s, repeat(in, fill, right))
	out.safe = s.safe
	return out
}

// window is the part s[start:end], with the number of characters before it.
func window(in *interp, s Str, start, end Value) (part Str, before int, ok bool) {
	lo, hi := orNone(start), orNone(end)
	if lo == nil && hi == nil {
		return s, 0, true
	}
	n := s.length(in)
	if lo != nil && clampIndex(lo) > n {
		return Str{}, 0, false
	}
	from, count, _ := sliceBounds(n, lo, hi, nil)
	i := s.offset(from)
	j := i + s.sub(i, len(s.text)).offset(count)
	return s.sub(i, j), from, true
}

func countMethod(in *interp, s Str, a []Value) Value {
	part, _, ok := window(in, s, a[1], a[2])
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(part.text, mustStr(a[0], "count").text))
}

func findMethod(find func(s, sub string) int, raise bool) func(*interp, Str, []Value) Value {
	return func(in *interp, s Str, a []Value) Value {
		sub := mustStr(a[0], "find")
		part, before, ok := window(in, s, a[1], a[2])
		if i := find(part.text, sub.text); ok && i >= 0 {
			return int64(before + utf8.RuneCountInString(part.text[:i]))
		}
		if raise {
			panic(valueErr("substring not found"))
		}
		return int64(-1)
	}
}

func affixMethod(has func(s, affix string) bool) func(*interp, Str, []Value) Value {
	return func(in *interp, s Str, a []Value) Value {
		part, _, ok := window(in, s, a[1], a[2])
		if t, isTuple := a[0].(Tuple); isTuple {
			for _, v := range t {
				in.tick(1)
				if ok && has(part.text, mustStr(v, "startswith").text) {
					return true
				}
			}
			return false
		}
		return ok && has(part.text, mustStr(a[0], "startswith").text)
	}
}

func removePrefix(_ *interp, s Str, a []Value) Value {
	if p := mustStr(a[0], "removeprefix").text; strings.HasPrefix(s.text, p) {
		return s.sub(len(p), len(s.text)).plain()
	}
	return s.plain()
}

func removeSuffix(_ *interp, s Str, a []Value) Value {
	if p := mustStr(a[0], "removesuffix").text; strings.HasSuffix(s.text, p) {
		return s.sub(0, len(s.text)-len(p)).plain()
	}
	return s.plain()
}

func stripMethod(left, right bool) func(*interp, Str, []Value) Value {
	return func(in *interp, s Str, a []Value) Value { return strip(s, orNone(a[0]), left, right) }
}

// strip removes the characters of a set, or whitespace where it is None.
func strip(s Str, set Value, left, right bool) Str {
	drop := isSpace
	if set != nil {
		chars := map[rune]bool{}
		for _, r := range mustStr(set, "strip").text {
			chars[r] = true
		}
		drop = func(r rune) bool { return chars[r] }
	}
	i, j := 0, len(s.text)
	if left {
		i = j - len(strings.TrimLeftFunc(s.text, drop))
	}
	if right {
		j = i + len(strings.TrimRightFunc(s.text[i:], drop))
	}
	return s.sub(i, j)
}

func partitionMethod(find func(s, sub string) int, last bool) func(*interp, Str, []Value) Value {
	return func(in *interp, s Str, a []Value) Value {
		sep := mustStr(a[0], "partition")
		if sep.text == "" {
			panic(valueErr("empty separator"))
		}
		i := find(s.text, sep.text)
		switch {
		case i < 0 && last:
			return Tuple{s.sub(0, 0), s.sub(0, 0), s}
		case i < 0:
			return Tuple{s, s.sub(0, 0), s.sub(0, 0)}
		}
		end := i + len(sep.text)
		return Tuple{s.sub(0, i), s.sub(i, end), s.sub(end, len(s.text))}
	}
}

func replaceMethod(in *interp, s Str, a []Value) Value {
	return replace(in, s, mustStr(a[0], "replace"), mustStr(a[1], "replace"), optInt(a[2], -1))
}

// replace is s.replace(old, new, count); a negative count means all.
func replace(in *interp, s, old, repl Str, count int64) Str {
	b := newBuf(in)
	at := 0
	for n := int64(0); n != count; n++ {
		in.tick(1 + len(s.runs)/16)
		i := strings.Index(s.text[at:], old.text)
		if old.text == "" && at < len(s.text) && n > 0 {
			i = runeLen(s.text[at:]) // an empty string is before each character
		}
		if i < 0 {
			break
		}
		b.add(s.sub(at, at+i))
		b.add(repl)
		at += i + len(old.text)
		if old.text == "" && at == len(s.text) {
			break
		}
	}
	b.add(s.sub(at, len(s.text)))
	out := b.str()
	out.safe = s.safe
	return out
}

func joinMethod(in *interp, s Str, a []Value) Value {
	var parts []Str
	next := in.mustIter(a[0])
	for item, ok := next(); ok; item, ok = next() {
		part, isStr := item.(Str)
		if !isStr && s.safe {
			part, isStr = in.str(item), true
		}
		if !isStr {
			panic(typeErr("sequence item %d: expected str instance, %s found", len(parts), typeName(item)))
		}
		if s.safe {
			part = escape(in, part)
		}
		in.list(3)
		parts = append(parts, part)
	}
	out := join(in, s, parts)
	out.safe = s.safe
	return out
}

func join(in *interp, sep Str, parts []Str) Str {
	b := newBuf(in)
	for i, p := range parts {
		if i > 0 {
			b.add(sep)
		}
		in.tick(1)
		b.add(p)
	}
	return b.str()
}

func expandTabs(in *interp, s Str, a []Value) Value {
	size := optInt(a[0], 8)
	col := int64(0)
	b := newBuf(in)
	for i, r := range s.text {
		switch r {
		case '\t':
			if size > 0 {
				n := size - col%size
				b.add(repeat(in, Trusted(" "), n))
				col += n
			}
			continue
		case '\n', '\r':
			col = -1
		}
		in.tick(1)
		b.add(s.sub(i, i+utf8.RuneLen(r)))
		col++
	}
	return b.str()
}

func zfill(in *interp, s Str, a []Value) Value {
	sign := 0
	if strings.HasPrefix(s.text, "-") || strings.HasPrefix(s.text, "+") {
		sign = 1
	}
	missing := mustIndex(a[0]) - int64(s.length(in))
	return concat(in, s.sub(0, sign), repeat(in, Trusted("0"), missing), s.sub(sign, len(s.text)))
}
