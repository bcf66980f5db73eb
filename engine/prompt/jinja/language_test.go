package jinja_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"athanor/engine/prompt/jinja"
)

var day = time.Date(2026, 1, 5, 15, 4, 5, 678000000, time.UTC)

func decode(t testing.TB, text string) jinja.Value {
	t.Helper()
	v, err := jinja.DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLanguage has a case for each feature of the language; the goldens beside
// it go through their combinations.
func TestLanguage(t *testing.T) {
	vars := map[string]jinja.Value{
		"m": decode(t, `[{"role":"user","content":"hi"},{"role":"assistant","content":null,"calls":[{"name":"f","args":{"b":2,"a":"é"}}]}]`),
		"n": decode(t, `5`),
	}
	tests := []struct{ name, source, want string }{
		{"text", "a{b}c", "a{b}c"},
		{"trim_blocks", "{% if n %}\nx\n{% endif %}\ny", "x\ny"},
		{"lstrip_blocks", "  {% if n %}x{% endif %}", "x"},
		{"lstrip not for output", "  {{ n }}", "  5"},
		{"minus", "a \n {{- n -}} \n b", "a5b"},
		{"plus", "a\n  {%+ if n %}x{% endif %}", "a\n  x"},
		{"last newline", "x\n", "x"},
		{"comment", "a{# {{ x }} #}b", "ab"},
		{"raw", "{% raw %}{{ n }}{% endraw %}", "{{ n }}"},
		{"set and scope", "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
		{"namespace", "{% set s = namespace(x=1) %}{% for i in [1] %}{% set s.x = 2 %}{% endfor %}{{ s.x }}", "2"},
		{"for else", "{% for i in [] %}x{% else %}none{% endfor %}", "none"},
		{"for if", "{% for i in [1, 2, 3] if i != 2 %}{{ loop.index }}{{ i }} {% endfor %}", "11 23 "},
		{"for unpacking", "{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"},
		{"break continue", "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "02"},
		{"loop", "{% for i in 'ab' %}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}", "TrueFalse2b FalseTrue1a "},
		{"macro", "{% macro f(a, b='y') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, c=4) }}", "12(3,){'c': 4}"},
		{"call", "{% macro f() %}[{{ caller(1) }}]{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}", "[1]"},
		{"filter block", "{% filter upper %}a{{ n }}{% endfilter %}", "A5"},
		{"set block", "{% set x | trim %} a {% endset %}[{{ x }}]", "[a]"},
		{"generation", "{% generation %}a{% endgeneration %}", "a"},
		{"with", "{% with x = 1 %}{{ x }}{% endwith %}{{ x }}", "1"},
		{"inline if", "{{ 'a' if n == 5 else 'b' }}{{ 'c' if not n }}", "a"},
		{"slices", "{{ m[1:] | length }}{{ 'abcd'[::-1] }}{{ [1, 2, 3][-2:] }}", "1dcba[2, 3]"},
		{"tests", "{{ n is odd }}{{ x is defined }}{{ m is iterable }}{{ m[0] is mapping }}{{ m[1].content is none }}", "TrueFalseTrueTrueTrue"},
		{"attribute of none", "{{ m[1].content.x is defined }}", "False"},
		{"printing undefined", "[{{ x }}{{ m[0].x }}]", "[]"},
		{"tojson", "{{ m[1].calls[0] | tojson }}", `{"name": "f", "args": {"b": 2, "a": "é"}}`},
		{"tojson options", "{{ m[1].calls[0].args | tojson(indent=1, sort_keys=true, ensure_ascii=true) }}", "{\n \"a\": \"\\u00e9\",\n \"b\": 2\n}"},
		{"repr", "{{ m[1].calls }}", "[{'name': 'f', 'args': {'b': 2, 'a': 'é'}}]"},
		{"selectattr and map", "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}", "hi"},
		{"key order", "{% for k in m[1] %}{{ k }} {% endfor %}", "role content calls "},
		{"strftime_now", "{{ strftime_now('%d %b %Y %-H:%M %p %f %j') }}", "05 Jan 2026 15:04 PM 678000 005"},
		{"markup quirk", "{{ 'a'|safe + '\"<' }}", "a&#34;&lt;"},
		{"big ints", "{{ 9223372036854775807 + 1 }} {{ 2 ** 64 % 10 }}", "9223372036854775808 6"},
		{"floats", "{{ 1.0 }} {{ 1e16 }} {{ 0.1 + 0.2 }}", "1.0 1e+16 0.30000000000000004"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := render(tt.source, vars, day)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestSyntaxErrors(t *testing.T) {
	tests := []struct {
		source       string
		line, column int
		msg          string
	}{
		{"a\n{% frob %}", 2, 4, "unknown tag 'frob'"},
		{"{% include 'x' %}", 1, 4, "'include' is not supported"},
		{"é{{ n | frob }}", 1, 9, "no filter 'frob'"},
		{"{{ n | urlize }}", 1, 8, "filter 'urlize' is not supported"},
		{"{{ n is frob }}", 1, 9, "no test 'frob'"},
		{"{% for a in b recursive %}{% endfor %}", 1, 15, "recursive loops are not supported"},
		{"{% if n %}\n", 1, 11, "expected elif or else or endif"},
		{"{% if n %}{% endfor %}", 1, 14, "unknown tag 'endfor'"},
		{"{{ 'abc }}", 1, 4, "missing end of string"},
		{"{{ (1] }}", 1, 6, "unexpected ']', expected ')'"},
		{"{{ 1 +}}", 1, 7, "unexpected end of print statement"},
		{"{{ `x` }}", 1, 4, "unexpected character"},
		{"{{ '\\ud800' }}", 1, 5, "escape is no character"},
		{"{% set 'a' = 1 %}", 1, 8, "can't assign"},
		{"{% continue %}", 1, 4, "outside of a loop"},
		{"{% for a in b %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", 1, 36, "outside of a loop"},
		{"ok \xff", 1, 4, "not valid UTF-8"},
		{"{# x", 1, 1, "missing end of comment"},
	}
	for _, tt := range tests {
		_, err := jinja.Parse(tt.source)
		var syntax *jinja.SyntaxError
		if !errors.As(err, &syntax) || syntax.Line != tt.line || syntax.Column != tt.column || !strings.Contains(syntax.Msg, tt.msg) {
			t.Errorf("%q: got %v, want line %d, column %d: %s", tt.source, err, tt.line, tt.column, tt.msg)
		}
	}
}

func TestRuntimeErrors(t *testing.T) {
	tests := []struct{ source, class string }{
		{"\n{{ x.y }}", "UndefinedError"},
		{"\n{{ x + 1 }}", "UndefinedError"},
		{"\n{{ 'a' + 1 }}", "TypeError"},
		{"\n{{ [1].append(2) }}", "SecurityError"},
		{"\n{{ [1].pop() }}", "SecurityError"},
		{"\n{{ {}.update({}) }}", "SecurityError"},
		{"\n{{ ''.__class__.x }}", "SecurityError"},
		{"\n{{ 1 // 0 }}", "ZeroDivisionError"},
		{"\n{{ [1] | tojson(9, 9, 9) }}", "TypeError"},
		{"\n{% if 1 %}{{ 1 | frob }}{% endif %}", "TemplateRuntimeError"},
		{"\n{% set x.y = 1 %}", "TemplateRuntimeError"},
		{"{% macro f() %}\n{{ 1 + 1 }}\n{% endmacro %}\n{{ f() + 1 }}", "TypeError"},
	}
	for _, tt := range tests {
		tmpl, err := jinja.Parse(tt.source)
		if err != nil {
			t.Fatalf("%q: %v", tt.source, err)
		}
		_, err = tmpl.Render(nil, jinja.Options{})
		var run *jinja.RuntimeError
		if !errors.As(err, &run) || run.Class != tt.class {
			t.Errorf("%q: got %v, want a %s", tt.source, err, tt.class)
			continue
		}
		want := strings.Count(strings.TrimSuffix(tt.source, "\n"), "\n") + 1
		if run.Line != want {
			t.Errorf("%q: got line %d, want %d", tt.source, run.Line, want)
		}
	}
}

func TestRaiseException(t *testing.T) {
	tmpl, err := jinja.Parse("x\n{{ raise_exception('roles must alternate') }}")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Render(nil, jinja.Options{})
	var refused *jinja.TemplateError
	if !errors.As(err, &refused) || refused.Message != "roles must alternate" || refused.Line != 2 {
		t.Fatalf("got %v, want the template's own refusal", err)
	}
}

func TestDecodeJSON(t *testing.T) {
	good := []struct{ in, want string }{
		{`{"b":1,"a":2,"b":3}`, "{'b': 3, 'a': 2}"},
		{`[1, 1.0, 1e2, -0, 123456789012345678901234567890, null, true]`, "[1, 1.0, 100.0, 0, 123456789012345678901234567890, None, True]"},
		{`"\u00e9\ud83d\ude00"`, "é😀"},
		{`[1e999]`, "[inf]"},
	}
	for _, tt := range good {
		got, err := render("{{ v }}", map[string]jinja.Value{"v": decode(t, tt.in)}, day)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	bad := []string{"", "{", `{"a":}`, "[1", "[1 2]", "1 2", `{"a" 1}`, "nul", `{1:2}`, "[1,]",
		strings.Repeat("[", 201) + strings.Repeat("]", 201), strings.Repeat("9", 5000), strings.Repeat("[", 1_000_000)}
	for _, in := range bad {
		if v, err := jinja.DecodeJSON([]byte(in)); err == nil {
			t.Errorf("%.40s: got %v, want an error", in, v)
		}
	}
}

// mark is a character that only data has here.
const mark = "\ue000"

// marked is data full of it.
const marked = `["\ue000a\ue000 B\ue000\n<\ue000", {"k\ue000": "\ue000", "x": ["\ue000 \ue000"]}]`

// TestProvenance applies everything that makes strings to data, between text of
// the template: what comes from data must stay marked as data, and text of the
// template must stay template text.
func TestProvenance(t *testing.T) {
	vars := map[string]jinja.Value{"u": decode(t, marked)}
	exprs := []string{
		"u", "u[1]", "u[0]", "u[0] + '!'", "'!' + u[0]", "u[0] ~ 1", "u[0] * 2", "u[0][0]", "u[0][1:]", "u[0][::-1]", "u[0][-1]",
		"'%s|%r|%5s' % (u[0], u[0], u[1])", "u[0] % ()", "'{}|{!r}|{:>30}|{x}'.format(u[0], u[1], u[0], x=u[0])", "u[0].format()",
		"u[0].upper()", "u[0].title()", "u[0].capitalize()", "u[0].swapcase()", "u[0].strip()", "u[0].strip('>')", "u[0].split()",
		"u[0].split('a')", "u[0].rsplit(None, 1)", "u[0].splitlines()", "u[0].partition('a')", "u[0].replace('a', 'b')",
		"u[0].replace('', '-')", "'axa'.replace('x', u[0])", "'a' + 'x'.join(u[0])", "u[0].join(['a', 'b'])", "u[0].center(40, '*')",
		"'x'.center(9, u[0][0])", "u[0].zfill(40)", "u[0].expandtabs()", "u[0].removeprefix('a')", "u[0].removesuffix('a')", "u[0].casefold()",
		"u | tojson", "u | tojson(indent=2)", "{'t': u[0], u[0]: 't'} | tojson", "[1, 2] | tojson(separators=(u[0], u[0]))", "[1] | tojson(indent=u[0])",
		"u | string", "u | join(' ')", "[1, 2] | join(u[0])", "u | map('string') | join", "u | first", "u[0] | first", "u[0] | last", "u[0] | list",
		"u[0] | reverse", "u[0] | e", "u[0] | safe + '<'", "u[0] | e + u[0]", "u[0] | indent", "'a\nb' | indent(u[0])", "u[0] | truncate(5, true, '')",
		"'abcdefghijklmnop' | truncate(6, true, u[0][0:1])", "u[0] | title", "u[0] | replace('a', u[0])", "u[0] | trim", "u[1] | dictsort", "u[1] | items | list",
		"u[1].keys() | list", "u[1].items()", "[u[0], 'x'] | sort | list", "[u[0]] | unique | list", "[u[0]] | batch(2, 't') | list", "u[0] | center(40)",
		"[{'n': u[0]}] | groupby('n')", "dict(a=u[0])", "namespace(a=u[0])", "namespace(a=u[0]).a", "strftime_now(u[0])", "cycler(u[0]).next()",
		"u[1]['k' + u[0][0]]", "[[u[0]], ['x']] | sum(start=[])", "u[0] if u else ''", "u | max(attribute='0') if false else u[0]", "u.zz ~ u[0]",
	}
	for _, e := range exprs {
		tmpl, err := jinja.Parse("<s>{{ " + e + " }}</s>{% macro m(x) %}<m>{{ x }}{% endmacro %}{{ m(" + e + ") }}{% set b %}<b>{{ " + e + " }}{% endset %}{{ b }}")
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		out, err := tmpl.Render(vars, jinja.Options{Now: day})
		if err != nil {
			t.Errorf("%s: %v", e, err)
			continue
		}
		tags := ""
		seen := false
		for text, trusted := range out.Spans {
			if trusted {
				tags += text
			}
			has := strings.Contains(text, mark) || strings.Contains(text, `ue000`)
			seen = seen || has
			if has && trusted {
				t.Errorf("%s: data became template text: %q", e, text)
			}
		}
		if !seen {
			t.Errorf("%s: no data in %q", e, out)
		}
		for _, tag := range []string{"<s>", "</s>", "<m>", "<b>"} {
			if !strings.Contains(tags, tag) {
				t.Errorf("%s: template text %s is not trusted in %q", e, tag, out)
			}
		}
	}
}

// FuzzTemplate checks that no template and no data make the interpreter panic,
// that its work stays bounded, and that the spans are the text.
func FuzzTemplate(f *testing.F) {
	for _, source := range []string{
		"{% for m in v %}{{ m.role ~ loop.index }}{% endfor %}", "{{ v | tojson(indent=2) }}", "{{ '%s' % v }}{{ '{:>9}'.format(v) }}",
		"{% macro f(a, *b) %}{% endmacro %}", "{% set x | upper %}a{% endset %}{{ x[::-1] }}", "{% raw %}{{{% endraw %}", "{{ v|sort|unique|list|batch(2)|map('join')|list }}",
		"{%- if v is mapping -%}{{ v.items()|list }}{%- endif +%}\n", "{{ v.split('a', 1)[-1].strip() if v is string else range(3)[1:] }}",
	} {
		f.Add(source, `[{"role":"user","content":"a"}]`)
	}
	f.Add("{{ v.upper().center(20, '*') | replace('A', '') | truncate(5) | indent(2) }}", `"aßb\nc"`)
	f.Add("{{ u }}{{ u[0].split('a')|join('b')|upper }}{{ '%s'|format(u[1])|tojson }}", `1`)
	f.Add("{{ v['a'] // 3 ** -v.a % 7.5 | round(2) | int }}", `{"a":-3}`)
	f.Fuzz(func(t *testing.T, source, data string) {
		tmpl, err := jinja.Parse(source)
		if err != nil {
			return
		}
		v, err := jinja.DecodeJSON([]byte(data))
		if err != nil {
			v = jinja.Untrusted(strings.ToValidUTF8(data, "?"))
		}
		out, err := tmpl.Render(map[string]jinja.Value{"v": v, "u": decode(t, marked)}, jinja.Options{
			Now: day, Limits: jinja.Limits{Steps: 20_000, Bytes: 4 << 20, Output: 1 << 20, String: 1 << 20},
		})
		if err != nil {
			return
		}
		joined := ""
		for text, trusted := range out.Spans {
			joined += text
			if trusted && strings.Contains(text, mark) && !strings.Contains(source, mark) && !strings.Contains(source, `\`) {
				t.Fatalf("data became template text: %q", text)
			}
		}
		if joined != out.String() {
			t.Fatalf("spans make %q, the text is %q", joined, out.String())
		}
	})
}
