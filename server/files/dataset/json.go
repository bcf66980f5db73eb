package dataset

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

const (
	maxDepth = 100     // levels of lists and objects
	maxNodes = 1 << 20 // values of one line
)

// kind is the type of a JSON value.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

// String names a kind as messages do.
func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// node is one value of a parsed line. Positions are bytes of the line; of strings
// they leave the quotes out.
type node struct {
	start, end  int32
	key, keyEnd int32 // the name of a member
	next        int32 // following sibling, 0 for none
	count       int32 // of members or elements, the first of which is the next node
	kind        kind
	escaped     bool // the string needs decoding
	keyEscaped  bool
}

// document is one line of JSON as a flat tree in preorder. Its memory is used
// again for the next line. Node 0 is the whole value.
type document struct {
	b     []byte
	i     int
	nodes []node
}

// parse reads b, which must be valid UTF-8, as exactly one JSON value (RFC 8259).
// It is stricter than many readers: no NaN, no half surrogate pairs. The reason
// is "" when all is well.
func (d *document) parse(b []byte) (reason string) {
	d.b, d.i, d.nodes = b, 0, d.nodes[:0]
	d.space()
	if reason := d.value(0); reason != "" {
		return "the line is not valid JSON: " + reason
	}
	if d.space(); d.i < len(b) {
		return fmt.Sprintf("the line goes on after its JSON value, at byte %d", d.i+1)
	}
	return ""
}

func (d *document) space() {
	for d.i < len(d.b) && (d.b[d.i] == ' ' || d.b[d.i] == '\t' || d.b[d.i] == '\r' || d.b[d.i] == '\n') {
		d.i++
	}
}

// unexpected describes what stands at the current place.
func (d *document) unexpected(want string) string {
	if d.i >= len(d.b) {
		return "it ends where " + want + " is expected"
	}
	r, _ := utf8.DecodeRune(d.b[d.i:])
	return fmt.Sprintf("%q at byte %d where %s is expected", r, d.i+1, want)
}

// value reads one value and appends its nodes.
func (d *document) value(depth int) string {
	if d.i >= len(d.b) {
		return d.unexpected("a value")
	}
	if len(d.nodes) >= maxNodes {
		return fmt.Sprintf("it holds more than %d values", maxNodes)
	}
	at := len(d.nodes)
	d.nodes = append(d.nodes, node{start: int32(d.i)})
	var reason string
	k := null
	switch c := d.b[d.i]; {
	case c == '"':
		var escaped bool
		d.nodes[at].start++
		escaped, reason = d.quoted()
		d.nodes[at].kind, d.nodes[at].escaped, d.nodes[at].end = text, escaped, int32(d.i-1)
		return reason
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return fmt.Sprintf("it is nested deeper than %d levels", maxDepth)
		}
		k = list
		if c == '{' {
			k = object
		}
		reason = d.members(at, k == object, depth+1)
	case c == '-' || c >= '0' && c <= '9':
		k, reason = number, d.number()
	case c == 't':
		k, reason = boolean, d.literal("true")
	case c == 'f':
		k, reason = boolean, d.literal("false")
	case c == 'n':
		reason = d.literal("null")
	default:
		return d.unexpected("a value")
	}
	d.nodes[at].kind, d.nodes[at].end = k, int32(d.i)
	return reason
}

func (d *document) literal(word string) string {
	if len(d.b)-d.i < len(word) || string(d.b[d.i:d.i+len(word)]) != word {
		return d.unexpected("a value")
	}
	d.i += len(word)
	return ""
}

// members reads the inside of a list or, with names, of an object.
func (d *document) members(parent int, names bool, depth int) string {
	closing := byte(']')
	if names {
		closing = '}'
	}
	d.i++
	if d.space(); d.i < len(d.b) && d.b[d.i] == closing {
		d.i++
		return ""
	}
	last := 0
	for count := int32(1); ; count++ {
		var key, keyEnd int
		var escaped bool
		if names {
			var reason string
			if key, keyEnd, escaped, reason = d.name(); reason != "" {
				return reason
			}
		}
		at := len(d.nodes)
		if reason := d.value(depth); reason != "" {
			return reason
		}
		n := &d.nodes[at]
		n.key, n.keyEnd, n.keyEscaped = int32(key), int32(keyEnd), escaped
		if last > 0 {
			d.nodes[last].next = int32(at)
		}
		last = at
		d.space()
		if d.i < len(d.b) && d.b[d.i] == closing {
			d.i++
			d.nodes[parent].count = count
			return ""
		}
		if d.i >= len(d.b) || d.b[d.i] != ',' {
			return d.unexpected(fmt.Sprintf("a comma or %q", closing))
		}
		d.i++
		d.space()
	}
}

// name reads a member's name and the colon.
func (d *document) name() (start, end int, escaped bool, reason string) {
	if d.i >= len(d.b) || d.b[d.i] != '"' {
		return 0, 0, false, d.unexpected("a name in double quotes")
	}
	start = d.i + 1
	if escaped, reason = d.quoted(); reason != "" {
		return 0, 0, false, reason
	}
	end = d.i - 1
	if d.space(); d.i >= len(d.b) || d.b[d.i] != ':' {
		return 0, 0, false, d.unexpected("a colon")
	}
	d.i++
	d.space()
	return start, end, escaped, ""
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain is the number of bytes at the beginning of b that stand for themselves in
// a string. It looks at eight at a time: a byte below 0x20, or one that is zero
// after exclusive-or with a quote or a backslash, sets its high bit, and the
// lowest such bit is never a false one.
func plain(b []byte) int {
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		q, s := w^(ones*'"'), w^(ones*'\\')
		if m := ((w-ones*0x20)&^w | (q-ones)&^q | (s-ones)&^s) & highs; m != 0 {
			return n + bits.TrailingZeros64(m)/8
		}
	}
	for ; n < len(b); n++ {
		if c := b[n]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return n
}

// quoted reads a string from its opening quote to behind the closing one.
func (d *document) quoted() (escaped bool, reason string) {
	open := d.i + 1
	d.i++
	for {
		d.i += plain(d.b[d.i:])
		switch {
		case d.i >= len(d.b):
			return false, fmt.Sprintf("the string that begins at byte %d has no end", open)
		case d.b[d.i] == '"':
			d.i++
			return escaped, ""
		case d.b[d.i] != '\\':
			return false, fmt.Sprintf("the control character 0x%02x at byte %d must be escaped", d.b[d.i], d.i+1)
		}
		escaped = true
		if reason = d.escape(); reason != "" {
			return false, reason
		}
	}
}

// escape reads one escape sequence, a surrogate pair as one.
func (d *document) escape() string {
	at := d.i
	if at+1 >= len(d.b) {
		d.i = len(d.b)
		return "it ends inside an escape sequence"
	}
	switch d.b[at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		d.i += 2
		return ""
	case 'u':
		r, ok := hex4(d.b, at+2)
		if !ok {
			return fmt.Sprintf("the escape at byte %d needs four hexadecimal digits", at+1)
		}
		d.i += 6
		if r < 0xd800 || r > 0xdfff {
			return ""
		}
		if r < 0xdc00 && d.i+1 < len(d.b) && d.b[d.i] == '\\' && d.b[d.i+1] == 'u' {
			if low, ok := hex4(d.b, d.i+2); ok && low >= 0xdc00 && low <= 0xdfff {
				d.i += 6
				return ""
			}
		}
		return fmt.Sprintf("the escape at byte %d is half of a surrogate pair", at+1)
	}
	return fmt.Sprintf("the escape at byte %d does not exist", at+1)
}

func hex4(b []byte, at int) (r rune, ok bool) {
	if at+4 > len(b) {
		return 0, false
	}
	for _, c := range b[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number reads a number of the JSON grammar.
func (d *document) number() string {
	digits := func() bool {
		from := d.i
		for d.i < len(d.b) && d.b[d.i] >= '0' && d.b[d.i] <= '9' {
			d.i++
		}
		return d.i > from
	}
	if d.b[d.i] == '-' {
		d.i++
	}
	switch {
	case d.i < len(d.b) && d.b[d.i] == '0':
		d.i++
	case !digits():
		return d.unexpected("a digit")
	}
	if d.i < len(d.b) && d.b[d.i] == '.' {
		d.i++
		if !digits() {
			return d.unexpected("a digit")
		}
	}
	if d.i < len(d.b) && d.b[d.i]|0x20 == 'e' {
		d.i++
		if d.i < len(d.b) && (d.b[d.i] == '+' || d.b[d.i] == '-') {
			d.i++
		}
		if !digits() {
			return d.unexpected("a digit")
		}
	}
	return ""
}

// first is the first member or element of a node, 0 for none.
func (d *document) first(n int32) int32 {
	if d.nodes[n].count == 0 {
		return 0
	}
	return n + 1
}

// raw is the source of a value, of a string without its quotes.
func (d *document) raw(n int32) []byte { return d.b[d.nodes[n].start:d.nodes[n].end] }

// string decodes a string.
func (d *document) string(n int32) string { return unescape(d.raw(n), d.nodes[n].escaped) }

// key decodes the name of a member.
func (d *document) key(n int32) string {
	m := &d.nodes[n]
	return unescape(d.b[m.key:m.keyEnd], m.keyEscaped)
}

// hasKey compares the name of a member, without decoding where that can be.
func (d *document) hasKey(n int32, name string) bool {
	m := &d.nodes[n]
	if m.keyEscaped {
		return d.key(n) == name
	}
	return string(d.b[m.key:m.keyEnd]) == name
}

func unescape(b []byte, escaped bool) string {
	if !escaped {
		return string(b)
	}
	var s string
	if json.Unmarshal(append(append([]byte{'"'}, b...), '"'), &s) != nil {
		return string(b) // not reached: the parser has read it before
	}
	return s
}
