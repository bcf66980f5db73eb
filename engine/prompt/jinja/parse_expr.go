package jinja

import (
	"math/big"
	"strconv"
)

// tuple parses an expression, or several with commas as a tuple. cond allows
// "a if b else c"; end is a name that ends the tuple.
func (p *parser) tuple(cond bool, end string) expr {
	return p.tupleOf(func() expr { return p.expression(cond) }, end, false)
}

// simpleTuple parses what can be assigned to: primaries with commas.
func (p *parser) simpleTuple(end string) expr {
	return p.tupleOf(p.primary, end, false)
}

func (p *parser) tupleOf(item func() expr, end string, parens bool) expr {
	var items []expr
	comma := false
	for {
		if t := p.cur(); t.kind == tVarEnd || t.kind == tBlockEnd || p.isOp(")") || end != "" && p.isName(end) {
			break
		}
		items = append(items, item())
		if !p.skipOp(",") {
			break
		}
		comma = true
	}
	switch {
	case comma || len(items) == 0 && parens:
		return &tupleExpr{items}
	case len(items) == 0:
		p.fail(p.cur().pos, "expected an expression, got %s", p.cur().describe())
	}
	return items[0]
}

// target turns a parsed expression into what is assigned to.
func (p *parser) target(x expr, pos int) target {
	switch x := x.(type) {
	case *nameExpr:
		p.store(x.name)
		return &nameTarget{x.name}
	case *tupleExpr:
		t := &tupleTarget{}
		for _, item := range x.items {
			t.items = append(t.items, p.target(item, pos))
		}
		return t
	}
	p.fail(pos, "can't assign to this expression")
	return nil
}

func (p *parser) expression(cond bool) expr {
	defer p.deeper(1)()
	start := p.at
	x := p.or()
	for links := 0; cond && p.isName("if"); links++ {
		defer p.deeper(1)()
		line := int(p.next().line)
		c := &condExpr{test: p.or(), yes: x, line: line}
		if p.skipName("else") {
			c.no = p.expression(true)
		}
		for i := range p.names { // inside it, unknown names wait for run time
			p.names[i].soft = p.names[i].soft || p.names[i].tok >= start
		}
		x = c
	}
	return x
}

func (p *parser) or() expr {
	x := p.and()
	for p.skipName("or") {
		defer p.deeper(1)()
		x = &orExpr{x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.not()
	for p.skipName("and") {
		defer p.deeper(1)()
		x = &andExpr{x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	if p.skipName("not") {
		defer p.deeper(1)()
		return &unaryExpr{"not", p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	c := &compareExpr{first: p.sum()}
	for {
		t, op := p.cur(), ""
		switch {
		case t.kind == tOp && (t.text == "==" || t.text == "!=" || t.text == "<" || t.text == "<=" ||
			t.text == ">" || t.text == ">="):
			op = t.text
		case p.isName("in"):
			op = "in"
		case p.isName("not") && p.look().kind == tName && p.look().text == "in":
			p.next()
			op = "not in"
		}
		if op == "" {
			break
		}
		p.next()
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return c.first
	}
	return c
}

// chain parses left-associative operators.
func (p *parser) chain(item func() expr, ops ...string) expr {
	x := item()
	for {
		op := ""
		for _, o := range ops {
			if p.isOp(o) {
				op = o
			}
		}
		if op == "" {
			return x
		}
		defer p.deeper(1)()
		p.next()
		x = &binaryExpr{op, x, item()}
	}
}

func (p *parser) sum() expr { return p.chain(p.concat, "+", "-") }

func (p *parser) concat() expr {
	x := p.product()
	if !p.isOp("~") {
		return x
	}
	c := &concatExpr{[]expr{x}}
	for p.skipOp("~") {
		c.parts = append(c.parts, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.chain(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr {
	return p.chain(func() expr { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expr {
	defer p.deeper(1)()
	var x expr
	switch {
	case p.skipOp("-"):
		x = &unaryExpr{"-", p.unary(false)}
	case p.skipOp("+"):
		x = &unaryExpr{"+", p.unary(false)}
	default:
		x = p.primary()
	}
	x = p.postfix(x)
	if !filters {
		return x
	}
	for {
		defer p.deeper(1)()
		switch {
		case p.isOp("|"):
			x = p.filters(x, false)
		case p.isName("is"):
			x = p.test(x)
		case p.isOp("("):
			x = &callExpr{x, p.callArgs()}
		default:
			return x
		}
	}
}

func (p *parser) primary() expr {
	t := p.cur()
	switch t.kind {
	case tName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		p.read(t.text)
		return &nameExpr{t.text}
	case tString:
		text := p.next().text
		for p.cur().kind == tString {
			text += p.next().text
		}
		return &constExpr{Trusted(text)}
	case tInt:
		p.next()
		return &constExpr{p.integer(t)}
	case tFloat:
		p.next()
		f, _ := strconv.ParseFloat(t.text, 64) // out of range is inf, as in Python
		return &constExpr{f}
	}
	switch {
	case p.skipOp("("):
		defer p.deeper(1)()
		x := p.tupleOf(func() expr { return p.expression(true) }, "", true)
		p.expectOp(")")
		return x
	case p.skipOp("["):
		x := &listExpr{p.items("]")}
		p.expectOp("]")
		return x
	case p.isOp("{"):
		return p.dict()
	}
	p.fail(t.pos, "unexpected %s", t.describe())
	return nil
}

// items parses expressions with commas up to a closing bracket.
func (p *parser) items(end string) []expr {
	defer p.deeper(1)()
	var items []expr
	for !p.isOp(end) {
		if len(items) > 0 {
			p.expectOp(",")
			if p.isOp(end) {
				break
			}
		}
		items = append(items, p.expression(true))
	}
	return items
}

func (p *parser) dict() expr {
	defer p.deeper(1)()
	p.expectOp("{")
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
			if p.isOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression(true))
		p.expectOp(":")
		d.vals = append(d.vals, p.expression(true))
	}
	p.expectOp("}")
	return d
}

func (p *parser) integer(t token) Value {
	if len(t.text) > 4300 {
		p.fail(t.pos, "integer of more than 4300 digits")
	}
	base := 10 // leading zeros are not octal
	if len(t.text) > 1 && t.text[0] == '0' && t.text[1] > '9' {
		base = 0
	}
	n, ok := new(big.Int).SetString(t.text, base)
	if !ok {
		p.fail(t.pos, "not an integer: %s", t.text)
	}
	return normInt(n)
}

func (p *parser) postfix(x expr) expr {
	for {
		switch {
		case p.skipOp("."):
			defer p.deeper(1)()
			switch t := p.next(); t.kind {
			case tName:
				x = &attrExpr{x, t.text}
			case tInt:
				x = &itemExpr{x, &constExpr{p.integer(t)}}
			default:
				p.fail(t.pos, "expected a name or number, got %s", t.describe())
			}
		case p.skipOp("["):
			defer p.deeper(1)()
			x = p.subscript(x)
		case p.isOp("("):
			defer p.deeper(1)()
			x = &callExpr{x, p.callArgs()}
		default:
			return x
		}
	}
}

// subscript parses what stands between brackets: an index, several, or a slice.
func (p *parser) subscript(x expr) expr {
	at := p.cur().pos
	var part [3]expr
	colons := 0
	for !p.isOp("]") && !p.isOp(",") {
		if p.skipOp(":") {
			if colons++; colons > 2 {
				p.fail(at, "too many ':' in a slice")
			}
			continue
		}
		if part[colons] != nil {
			p.fail(p.cur().pos, "expected ']', got %s", p.cur().describe())
		}
		part[colons] = p.expression(true)
	}
	if p.isOp(",") {
		if colons > 0 {
			p.fail(at, "slices of several dimensions are not supported")
		}
		if part[0] == nil {
			p.fail(at, "expected a subscript")
		}
		items := []expr{part[0]}
		for p.skipOp(",") {
			items = append(items, p.expression(true))
		}
		part[0] = &tupleExpr{items}
	}
	p.expectOp("]")
	switch {
	case colons > 0:
		return &sliceExpr{x, part[0], part[1], part[2]}
	case part[0] == nil:
		p.fail(at, "expected a subscript")
	}
	return &itemExpr{x, part[0]}
}

func (p *parser) callArgs() (a argExprs) {
	defer p.deeper(1)()
	at := p.expectOp("(").pos
	ensure := func(ok bool) {
		if !ok {
			p.fail(at, "invalid order of arguments in a call")
		}
	}
	for n := 0; !p.isOp(")"); n++ {
		if n > 0 {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		switch next := p.look(); {
		case p.skipOp("*"):
			ensure(a.star == nil && a.kwstar == nil)
			a.star = p.expression(true)
		case p.skipOp("**"):
			ensure(a.kwstar == nil)
			a.kwstar = p.expression(true)
		case p.cur().kind == tName && next.kind == tOp && next.text == "=":
			ensure(a.kwstar == nil)
			a.names = append(a.names, p.next().text)
			p.next()
			a.kw = append(a.kw, p.expression(true))
		default:
			ensure(a.star == nil && a.kwstar == nil && len(a.names) == 0)
			a.pos = append(a.pos, p.expression(true))
		}
	}
	p.expectOp(")")
	return a
}

// filters parses "| name(args)" once or more; inline, the first "|" is left out.
func (p *parser) filters(x expr, inline bool) expr {
	for inline || p.isOp("|") {
		defer p.deeper(1)()
		if !inline {
			p.next()
		}
		inline = false
		tok := p.at
		name := p.dottedName("the name of a filter")
		f := &filterExpr{x: x, name: name, def: filters[name]}
		if f.def == nil {
			p.names = append(p.names, unknownName{tok, "filter '" + name + "'", p.soft, !refusedFilters[name]})
		}
		if p.isOp("(") {
			f.args = p.callArgs()
		}
		x = f
	}
	return x
}

func (p *parser) dottedName(what string) string {
	name := p.expectName(what).text
	for p.skipOp(".") {
		name += "." + p.expectName(what).text
	}
	return name
}

func (p *parser) test(x expr) expr {
	p.next()
	negated := p.skipName("not")
	tok := p.at
	name := p.dottedName("the name of a test")
	t := &testExpr{x: x, name: name, def: tests[name]}
	if t.def == nil {
		p.names = append(p.names, unknownName{tok, "test '" + name + "'", p.soft, true})
	}
	switch c := p.cur(); {
	case p.isOp("("):
		t.args = p.callArgs()
	case c.kind == tName && c.text == "is":
		p.fail(c.pos, "tests can't be chained with 'is'")
	case c.kind == tName && c.text != "else" && c.text != "or" && c.text != "and",
		c.kind == tString, c.kind == tInt, c.kind == tFloat, p.isOp("["), p.isOp("{"):
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &unaryExpr{"not", t}
	}
	return t
}
