package jinja

import (
	"strings"
	"unicode/utf8"
)

// Template is a compiled template. It is immutable.
type Template struct {
	body []stmt
}

// Parse compiles a template. Errors are *SyntaxError; tags, filters and tests
// that do not exist are refused here, by name.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, &SyntaxError{Line: 1, Column: 1, Msg: "template is longer than 1 MiB"}
	}
	if !utf8.ValidString(source) {
		bad := strings.IndexRune(strings.ToValidUTF8(source, "\x00"), 0)
		return nil, syntaxAt(source, bad, "template is not valid UTF-8")
	}
	src := normalize(source)
	defer func() {
		if r := recover(); r != nil {
			syntax, ok := r.(*SyntaxError)
			if !ok {
				panic(r)
			}
			t, err = nil, syntax
		}
	}()
	p := &parser{src: src, toks: lex(src)}
	body := p.block()
	p.checkNames()
	return &Template{body: body}, nil
}

// parser is a recursive-descent parser with one token of look-ahead.
type parser struct {
	src    string
	toks   []token
	at     int
	nest   int
	loops  int             // loops around the current statement, in its macro
	soft   bool            // inside an if, where unknown names wait for run time
	names  []unknownName   // filters and tests that do not exist
	macros []*macroContext // macros around the current place, outermost first
	ends   []string        // what the open statements wait for, for messages
}

// unknownName is a filter or test that does not exist, at a token.
type unknownName struct {
	tok       int
	what      string
	soft      bool
	supported bool // false: Jinja2 knows it, this package does not
}

// macroContext collects what a macro body reads.
type macroContext struct {
	def    *macroDef
	hidden map[string]bool
}

func (p *parser) fail(pos int, format string, args ...any) {
	panic(syntaxAt(p.src, pos, format, args...))
}

func (p *parser) cur() token { return p.toks[p.at] }

func (p *parser) look() token { return p.toks[min(p.at+1, len(p.toks)-1)] }

func (p *parser) next() token {
	t := p.toks[p.at]
	if p.at < len(p.toks)-1 {
		p.at++
	}
	return t
}

func (p *parser) isOp(op string) bool { t := p.cur(); return t.kind == tOp && t.text == op }

func (p *parser) isName(name string) bool { t := p.cur(); return t.kind == tName && t.text == name }

func (p *parser) skipOp(op string) bool {
	ok := p.isOp(op)
	if ok {
		p.next()
	}
	return ok
}

func (p *parser) skipName(name string) bool {
	ok := p.isName(name)
	if ok {
		p.next()
	}
	return ok
}

func (p *parser) expectOp(op string) token {
	if !p.isOp(op) {
		p.fail(p.cur().pos, "expected '%s', got %s", op, p.cur().describe())
	}
	return p.next()
}

func (p *parser) expectName(what string) token {
	if p.cur().kind != tName {
		p.fail(p.cur().pos, "expected %s, got %s", what, p.cur().describe())
	}
	return p.next()
}

func (p *parser) expectKind(k kind) token {
	if p.cur().kind != k {
		p.fail(p.cur().pos, "expected %s, got %s", token{kind: k}.describe(), p.cur().describe())
	}
	return p.next()
}

// deeper bounds the nesting of the tree, and with it the stack of both the
// parser and the interpreter. Call the result when the nested part is done.
func (p *parser) deeper(n int) func() {
	p.nest += n
	if p.nest > maxNest {
		p.fail(p.cur().pos, "nested deeper than %d", maxNest)
	}
	return func() { p.nest -= n }
}

// block parses statements up to one of the end tags, whose name stays current,
// or to the end of the template where none is given.
func (p *parser) block(ends ...string) []stmt {
	defer p.deeper(1)()
	p.ends = append(p.ends, ends...)
	defer func() { p.ends = p.ends[:len(p.ends)-len(ends)] }()
	var body []stmt
	for {
		switch t := p.next(); t.kind {
		case tEOF:
			if len(ends) > 0 {
				p.fail(t.pos, "unexpected end of template, expected %s", strings.Join(ends, " or "))
			}
			return body
		case tData:
			body = append(body, &dataStmt{Trusted(t.text)})
		case tVarBegin:
			x := p.tuple(true, "")
			p.expectKind(tVarEnd)
			body = append(body, &outputStmt{x, int(t.line)})
		case tBlockBegin:
			name := p.cur()
			if name.kind != tName {
				p.fail(name.pos, "expected the name of a tag, got %s", name.describe())
			}
			for _, end := range ends {
				if name.text == end {
					return body
				}
			}
			body = append(body, p.statement(name)...)
			p.expectKind(tBlockEnd)
		default:
			p.fail(t.pos, "unexpected %s", t.describe())
		}
	}
}

// body parses the rest of an opening tag and the statements to the end tag,
// which it takes too.
func (p *parser) body(ends ...string) ([]stmt, token) {
	p.skipOp(":")
	p.expectKind(tBlockEnd)
	body := p.block(ends...)
	return body, p.next()
}

// inner parses a body that is a scope of its own, as a Jinja2 frame is.
func (p *parser) inner(ends ...string) ([]stmt, token) {
	soft := p.soft
	p.soft = false
	defer func() { p.soft = soft }()
	return p.body(ends...)
}

// function parses a body that Jinja2 compiles to a function: no loop goes on
// around it.
func (p *parser) function(end string) []stmt {
	loops := p.loops
	p.loops = 0
	defer func() { p.loops = loops }()
	body, _ := p.inner(end)
	return body
}

// refused are the tags of Jinja2 that a chat template has no use for.
var refused = map[string]bool{
	"autoescape": true, "block": true, "debug": true, "do": true, "extends": true, "from": true,
	"import": true, "include": true, "trans": true,
}

func (p *parser) statement(name token) []stmt {
	p.next()
	line := int(name.line)
	switch name.text {
	case "if":
		return []stmt{p.ifStmt(line)}
	case "for":
		return []stmt{p.forStmt(line)}
	case "set":
		return []stmt{p.setStmt(line)}
	case "macro":
		return []stmt{p.macroStmt(line)}
	case "call":
		return []stmt{p.callStmt(line)}
	case "filter":
		f := p.filters(nil, true)
		body, _ := p.inner("endfilter")
		return []stmt{&filterStmt{f, body, line}}
	case "with":
		return []stmt{p.withStmt(line)}
	case "generation":
		return []stmt{&generationStmt{p.function("endgeneration")}}
	case "print":
		return p.printStmt(line)
	case "break", "continue":
		if p.loops == 0 {
			p.fail(name.pos, "'%s' outside of a loop", name.text)
		}
		how := flowBreak
		if name.text == "continue" {
			how = flowContinue
		}
		return []stmt{&jumpStmt{how}}
	}
	switch {
	case refused[name.text]:
		p.fail(name.pos, "the tag '%s' is not supported in chat templates", name.text)
	case len(p.ends) > 0:
		p.fail(name.pos, "unknown tag '%s', expected %s", name.text, p.ends[len(p.ends)-1])
	}
	p.fail(name.pos, "unknown tag '%s'", name.text)
	return nil
}

func (p *parser) ifStmt(line int) stmt {
	soft := p.soft
	p.soft = true
	defer func() { p.soft = soft }()
	s := &ifStmt{line: line}
	for {
		s.tests = append(s.tests, p.tuple(false, ""))
		body, end := p.body("elif", "else", "endif")
		s.bodies = append(s.bodies, body)
		switch end.text {
		case "elif":
			continue
		case "else":
			s.orElse, _ = p.body("endif")
		}
		return s
	}
}

func (p *parser) forStmt(line int) stmt {
	s := &forStmt{line: line}
	at := p.cur().pos
	s.target = p.target(p.simpleTuple("in"), at)
	if hasLoopName(s.target) {
		p.fail(at, "can't assign to the special variable 'loop' in a for loop")
	}
	if !p.skipName("in") {
		p.fail(p.cur().pos, "expected 'in', got %s", p.cur().describe())
	}
	s.iter = p.tuple(false, "recursive")
	if p.skipName("if") {
		s.test = p.expression(true)
	}
	if p.isName("recursive") {
		p.fail(p.cur().pos, "recursive loops are not supported in chat templates")
	}
	p.loops++
	body, end := p.inner("endfor", "else")
	p.loops--
	s.body = body
	if end.text == "else" {
		s.orElse, _ = p.inner("endfor")
	}
	return s
}

func hasLoopName(t target) bool {
	switch t := t.(type) {
	case *nameTarget:
		return t.name == "loop"
	case *tupleTarget:
		for _, item := range t.items {
			if hasLoopName(item) {
				return true
			}
		}
	}
	return false
}

func (p *parser) setStmt(line int) stmt {
	at := p.cur()
	var t target
	if next := p.look(); at.kind == tName && next.kind == tOp && next.text == "." {
		p.next()
		p.next()
		t = &attrTarget{at.text, p.expectName("the name of an attribute").text}
		p.read(at.text)
	} else {
		t = p.target(p.simpleTuple(""), at.pos)
	}
	if p.skipOp("=") {
		return &setStmt{t, p.tuple(true, ""), line}
	}
	filter := p.filters(nil, false)
	body, _ := p.inner("endset")
	return &setBlockStmt{t, filter, body, line}
}

func (p *parser) withStmt(line int) stmt {
	s := &withStmt{line: line}
	for p.cur().kind != tBlockEnd {
		if len(s.targets) > 0 {
			p.expectOp(",")
		}
		at := p.cur().pos
		s.targets = append(s.targets, p.target(p.simpleTuple(""), at))
		p.expectOp("=")
		s.vals = append(s.vals, p.expression(true))
	}
	s.body, _ = p.inner("endwith")
	return s
}

func (p *parser) printStmt(line int) []stmt {
	var out []stmt
	for p.cur().kind != tBlockEnd {
		if len(out) > 0 {
			p.expectOp(",")
		}
		out = append(out, &outputStmt{p.expression(true), line})
	}
	return out
}

func (p *parser) macroStmt(line int) stmt {
	def := &macroDef{name: p.expectName("the name of a macro").text}
	p.store(def.name)
	p.signature(def)
	p.macroBody(def, "endmacro")
	return &macroStmt{def, line}
}

func (p *parser) callStmt(line int) stmt {
	def := &macroDef{name: "caller"}
	if p.isOp("(") {
		p.signature(def)
	}
	at := p.cur().pos
	call, ok := p.expression(true).(*callExpr)
	if !ok {
		p.fail(at, "expected a call")
	}
	p.macroBody(def, "endcall")
	return &callStmt{def, call, line}
}

func (p *parser) signature(def *macroDef) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(def.params) > 0 {
			p.expectOp(",")
		}
		name := p.expectName("the name of a parameter")
		def.params = append(def.params, name.text)
		if p.skipOp("=") {
			def.defaults = append(def.defaults, p.expression(true))
		} else if len(def.defaults) > 0 {
			p.fail(name.pos, "parameter '%s' without default after one with default", name.text)
		}
	}
	p.expectOp(")")
}

func (p *parser) macroBody(def *macroDef, end string) {
	ctx := &macroContext{def: def, hidden: map[string]bool{}}
	for _, name := range def.params {
		ctx.hidden[name] = true
	}
	p.macros = append(p.macros, ctx)
	def.body = p.function(end)
	p.macros = p.macros[:len(p.macros)-1]
}

// read notes that a name is read: a macro that reads caller, varargs or kwargs
// takes them.
func (p *parser) read(name string) {
	if name != "caller" && name != "varargs" && name != "kwargs" {
		return
	}
	for _, m := range p.macros {
		if m.hidden[name] {
			continue
		}
		switch name {
		case "caller":
			m.def.caller = true
		case "varargs":
			m.def.varargs = true
		case "kwargs":
			m.def.kwargs = true
		}
	}
}

// store notes that a name is assigned, which hides the special one.
func (p *parser) store(name string) {
	for _, m := range p.macros {
		if name == "caller" || name == "varargs" || name == "kwargs" {
			m.hidden[name] = true
		}
	}
}

// checkNames refuses filters and tests that do not exist, as Jinja2 does at
// compile time everywhere except inside an if, and those that only Jinja2 has.
func (p *parser) checkNames() {
	for _, n := range p.names {
		switch pos := p.toks[n.tok].pos; {
		case !n.supported:
			p.fail(pos, "%s is not supported in chat templates", n.what)
		case !n.soft:
			p.fail(pos, "no %s", n.what)
		}
	}
}
