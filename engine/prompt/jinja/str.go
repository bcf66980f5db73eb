package jinja

import (
	"strings"
	"unicode/utf8"
)

// Str is a Python str with provenance: each byte is trusted (it comes from the
// template, or from a value given as trusted) or untrusted (it comes from
// data). The zero Str is empty. Strs are immutable.
type Str struct {
	text      string
	runs      []run // nil: one uniform run, see untrusted
	untrusted bool  // of the whole text, where runs is nil
	safe      bool  // markupsafe.Markup: made by the filters safe and escape
}

// run is a stretch of a Str of one provenance, up to end.
type run struct {
	end       int
	untrusted bool
}

// Trusted returns s as text of the template.
func Trusted(s string) Str { return Str{text: s} }

// Untrusted returns s as text of the data.
func Untrusted(s string) Str { return Str{text: s, untrusted: true} }

// String returns the text without its provenance.
func (s Str) String() string { return s.text }

// Spans calls yield for each longest stretch of one provenance, in order.
func (s Str) Spans(yield func(text string, trusted bool) bool) {
	if s.runs == nil {
		if s.text != "" {
			yield(s.text, !s.untrusted)
		}
		return
	}
	from := 0
	for _, r := range s.runs {
		if !yield(s.text[from:r.end], !r.untrusted) {
			return
		}
		from = r.end
	}
}

// sub returns the bytes i to j.
func (s Str) sub(i, j int) Str {
	out := Str{text: s.text[i:j], untrusted: s.untrusted, safe: s.safe}
	if s.runs == nil || i >= j {
		return out
	}
	from := 0
	for _, r := range s.runs {
		lo, hi := max(from, i), min(r.end, j)
		if lo < hi {
			out.runs = append(out.runs, run{hi - i, r.untrusted})
		}
		from = r.end
	}
	if len(out.runs) == 1 {
		out.untrusted, out.runs = out.runs[0].untrusted, nil
	}
	return out
}

// plain drops the Markup mark, as str(markup) does.
func (s Str) plain() Str { s.safe = false; return s }

// anyUntrusted says whether a byte of s came from data.
func (s Str) anyUntrusted() bool { return s.runs != nil || s.untrusted }

// mapRuns rewrites each stretch by itself; f must not need to see across one.
func (s Str) mapRuns(in *interp, f func(string) string) Str {
	in.tick(1 + len(s.text)/8) // dearer than a scan
	if s.runs == nil {
		out := f(s.text)
		in.grow(len(out))
		in.fits(int64(len(out)))
		s.text = out
		return s
	}
	b := newBuf(in)
	for text, trusted := range s.Spans {
		b.put(f(text), provenance(trusted))
	}
	out := b.str()
	out.safe = s.safe
	return out
}

// mark is the provenance of text being built. neutral text (the brackets of a
// printed list, say) takes the side of what surrounds it.
type mark uint8

const (
	trusted mark = iota
	untrusted
	neutral
)

func provenance(isTrusted bool) mark {
	if isTrusted {
		return trusted
	}
	return untrusted
}

// strBuf builds a Str within the budget of a rendering.
type strBuf struct {
	in   *interp
	b    strings.Builder
	runs []struct {
		end int
		m   mark
	}
	tainted bool
}

func newBuf(in *interp) *strBuf { return &strBuf{in: in} }

// put adds text of one provenance.
func (b *strBuf) put(text string, m mark) {
	if text == "" {
		return
	}
	b.in.grow(len(text))
	b.in.fits(int64(b.b.Len() + len(text)))
	b.b.WriteString(text)
	b.tainted = b.tainted || m == untrusted
	if n := len(b.runs); n > 0 && b.runs[n-1].m == m {
		b.runs[n-1].end = b.b.Len()
		return
	}
	b.in.grow(16)
	b.runs = append(b.runs, struct {
		end int
		m   mark
	}{b.b.Len(), m})
}

// lit adds text of the template or of an operation.
func (b *strBuf) lit(text string) { b.put(text, trusted) }

// add adds s with its provenance.
func (b *strBuf) add(s Str) {
	for text, ok := range s.Spans {
		b.put(text, provenance(ok))
	}
}

// str returns what was built. Neutral text becomes untrusted where any of the
// text is, else trusted.
func (b *strBuf) str() Str {
	out := Str{text: b.b.String()}
	for _, r := range b.runs {
		bad := r.m == untrusted || r.m == neutral && b.tainted
		if n := len(out.runs); n > 0 && out.runs[n-1].untrusted == bad {
			out.runs[n-1].end = r.end
		} else {
			out.runs = append(out.runs, run{r.end, bad})
		}
	}
	if len(out.runs) == 1 {
		out.untrusted = out.runs[0].untrusted
	}
	if len(out.runs) <= 1 {
		out.runs = nil
	}
	return out
}

// concat joins strings.
func concat(in *interp, parts ...Str) Str {
	b := newBuf(in)
	for _, p := range parts {
		b.add(p)
	}
	return b.str()
}

// repeat is s * n.
func repeat(in *interp, s Str, n int64) Str {
	if n <= 0 || s.text == "" {
		return Str{safe: s.safe}
	}
	if n > in.lim.String {
		n = in.lim.String + 1
	}
	in.fits(int64(len(s.text)) * n)
	if s.runs == nil {
		in.grow(len(s.text) * int(n))
		s.text = strings.Repeat(s.text, int(n))
		return s
	}
	b := newBuf(in)
	for range n {
		in.tick(1)
		b.add(s)
	}
	out := b.str()
	out.safe = s.safe
	return out
}

// length is len(s): characters, not bytes.
func (s Str) length(in *interp) int {
	in.scan(len(s.text))
	return utf8.RuneCountInString(s.text)
}

// offset returns the byte offset of character i, 0 <= i <= length.
func (s Str) offset(i int) int {
	for at := range s.text {
		if i == 0 {
			return at
		}
		i--
	}
	return len(s.text)
}

// escape is markupsafe.escape: s as Markup, with & < > " ' written as entities
// unless it is Markup already.
func escape(in *interp, s Str) Str {
	if s.safe {
		return s
	}
	s = s.mapRuns(in, htmlEscaper.Replace)
	s.safe = true
	return s
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")
