package jinja_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"athanor/engine/prompt/jinja"
)

// TestHostile gives the interpreter programs that would run or grow without
// end. Each has to end with an error, soon and in bounded memory.
func TestHostile(t *testing.T) {
	r := strings.Repeat
	tests := []struct{ name, source string }{
		{"nested loops", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"},
		{"loops that print", "{% for a in range(100000) %}{% for b in range(1000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}"},
		{"endless macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
		{"endless fork", "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}"},
		{"binary fork", "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}"},
		{"range", "{{ range(10 ** 9) | list }}"},
		{"range of int64", "{{ range(-9223372036854775808, 9223372036854775807) | length }}"},
		{"repeat", "{{ 'a' * 10 ** 9 }}"},
		{"repeat more", "{{ 'a' * 10 ** 30 }}"},
		{"repeat list", "{{ [0] * 10 ** 9 }}"},
		{"repeat lists", "{% for i in range(1000) %}{% set x = [0] * 100000 %}{% endfor %}"},
		{"doubling", "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}"},
		{"doubling list", "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}"},
		{"strings kept", "{% set n = namespace(s=[]) %}{% for i in range(99999) %}{% set n.s = n.s + ['a' * 1000000] %}{% endfor %}"},
		{"power", "{{ 10 ** (10 ** 10) }}"},
		{"powers", "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}"},
		{"pad", "{{ 'a'.center(10 ** 9) }}"},
		{"printf width", "{{ '%999999999d' % 1 }}"},
		{"printf star", "{{ '%*d' % (10 ** 12, 1) }}"},
		{"format width", "{{ '{:999999999}'.format(1) }}"},
		{"format precision", "{{ '{:.999999999f}'.format(1.5) }}"},
		{"indent", "{{ ('\\n' * 10000) | indent(10000, true, true) }}"},
		{"join", "{{ ('a' * 100000) | join('b' * 100000) }}"},
		{"replace", "{{ ('a' * 100000).replace('a', 'b' * 100000) }}"},
		{"tojson indent", "{{ ([0] * 10000) | tojson(indent=100000) }}"},
		{"deep list", "{% set n = namespace(x=1) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}"},
		{"wide list", "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}"},
		{"wide list json", "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}"},
		{"wide list equal", "{% set n = namespace(x=1, y=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}"},
		{"wide tuple key", "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}"},
		{"self", "{% set n = namespace() %}{% set n.x = n %}{{ n }}"},
		{"iterator chain", "{% set n = namespace(x=[1]) %}{% for i in range(50000) %}{% set n.x = n.x | select %}{% endfor %}{{ n.x | list }}"},
		{"loop chain", "{% set n = namespace(x=[1]) %}{% for i in range(5) %}{% for j in range(50000) %}{% set n.x = n.x | map('string') %}{% endfor %}{% endfor %}{{ n.x | first }}"},
		{"batch", "{{ [1] | batch(10 ** 9, 0) | list }}"},
		{"slice", "{{ [1] | slice(10 ** 9, 0) | map('list') | list | string * 1000 }}"},
		{"sort", "{% for i in range(1000) %}{{ range(100000) | sort(reverse=true) | first }}{% endfor %}"},
		{"split", "{% for i in range(1000) %}{{ ('a ' * 1000000).split() | length }}{% endfor %}"},
		{"search", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}"},
		{"index", "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}"},
		{"strip set", "{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') }}{% for i in range(1000) %}{{ ('a' * 1000000).strip('a') }}{% endfor %}"},
		{"upper", "{% for i in range(10000) %}{% set s = ('ß' * 100000) | upper %}{% endfor %}"},
		{"strftime", "{{ strftime_now('%c' * 2000000) }}"},
		{"blocks", "{% for i in range(100000) %}{% set x %}{{ 'a' * 100000 }}{% endset %}{% endfor %}"},
		{"cycle of cycles", "{% set c = cycler(1) %}{% for i in range(100000) %}{% for j in range(100) %}{{ c.next() }}{% endfor %}{% endfor %}"},
		{"big output", "{% for i in range(100) %}{{ 'a' * 100000 }}{% endfor %}"},
		{"unicode width", "{{ 'x' | center(10 ** 9) }}"},
		{"parentheses", "{{ " + r("(", 10000) + "1" + r(")", 10000) + " }}"},
		{"brackets", "{{ " + r("[", 400000)},
		{"nots", "{{ " + r("not ", 100000) + "1 }}"},
		{"minuses", "{{ " + r("-", 400000) + "1 }}"},
		{"pluses", "{{ 1" + r(" + 1", 20000) + " }}"},
		{"attributes", "{{ a" + r(".a", 100000) + " }}"},
		{"filters", "{{ 1" + r("|e", 100000) + " }}"},
		{"inline ifs", "{{ 1" + r(" if 1 else 1", 20000) + " }}"},
		{"ifs", r("{% if 1 %}", 50000)},
		{"fors", r("{% for a in b %}", 20000) + r("{% endfor %}", 20000)},
		{"macros", r("{% macro m() %}", 5000) + r("{% endmacro %}", 5000)},
		{"tokens", "{{ [" + r("1,", 400000) + "] }}"},
		{"long", r("x", 1<<20+1)},
		{"comments", r("{#", 500000)},
		{"raws", r("{% raw %}", 100000)},
		{"opens", r("{", 1<<20)},
		{"long int", "{{ " + r("9", 100000) + " }}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			tmpl, err := jinja.Parse(tt.source)
			if err == nil {
				_, err = tmpl.Render(map[string]jinja.Value{}, jinja.Options{})
			}
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			made := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%v, %d MiB made: %.100v", took.Round(time.Millisecond), made, err)
			if err == nil {
				t.Error("no error")
			}
			// The aim is 100 ms; the test leaves room for slow and busy machines.
			if took > 2*time.Second || made > 256 {
				t.Errorf("took %v and made %d MiB", took, made)
			}
		})
	}
}

func TestLimitErrorNamesLine(t *testing.T) {
	tmpl, err := jinja.Parse("a\nb\n{% set x = 'a' * 10 ** 9 %}\n")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tmpl.Render(nil, jinja.Options{})
	var limit *jinja.LimitError
	if !errors.As(err, &limit) || limit.Line != 3 {
		t.Fatalf("got %v, want a LimitError of line 3", err)
	}
}
