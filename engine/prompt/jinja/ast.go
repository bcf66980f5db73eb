package jinja

// expr is an expression node.
type expr interface {
	eval(in *interp, sc *scope) Value
}

// stmt is a statement node; it writes its output to out.
type stmt interface {
	exec(in *interp, sc *scope, out *strBuf) flow
}

// flow says how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// Expressions.
type (
	constExpr struct{ v Value }
	nameExpr  struct{ name string }
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct{ keys, vals []expr }
	unaryExpr struct {
		op string // "-", "+", "not"
		x  expr
	}
	binaryExpr struct {
		op   string
		l, r expr
	}
	andExpr     struct{ l, r expr }
	orExpr      struct{ l, r expr }
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	condExpr struct {
		test, yes, no expr // no may be nil
		line          int
	}
	attrExpr struct {
		x    expr
		name string
	}
	itemExpr  struct{ x, key expr }
	sliceExpr struct{ x, lo, hi, step expr } // any of the three may be nil
	callExpr  struct {
		fn   expr
		args argExprs
	}
	filterExpr struct {
		x    expr // nil in a filter or set block: the block's text
		name string
		def  *filterDef // nil: unknown, refused when it runs
		args argExprs
	}
	testExpr struct {
		x    expr
		name string
		def  *testDef
		args argExprs
	}
)

// argExprs are the arguments of a call: positional, keyword, *star, **kwstar.
type argExprs struct {
	pos          []expr
	names        []string
	kw           []expr
	star, kwstar expr
}

// Statements.
type (
	dataStmt   struct{ text Str }
	outputStmt struct {
		x    expr
		line int
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt
		orElse []stmt
		line   int
	}
	forStmt struct {
		target target
		iter   expr
		test   expr // nil without "if"
		body   []stmt
		orElse []stmt
		line   int
	}
	setStmt struct {
		target target
		x      expr
		line   int
	}
	setBlockStmt struct {
		target target
		filter expr // nil without one
		body   []stmt
		line   int
	}
	withStmt struct {
		targets []target
		vals    []expr
		body    []stmt
		line    int
	}
	macroStmt struct {
		def  *macroDef
		line int
	}
	callStmt struct { // {% call %}
		caller *macroDef
		call   *callExpr
		line   int
	}
	filterStmt struct {
		filter expr
		body   []stmt
		line   int
	}
	generationStmt struct{ body []stmt } // a scope of its own; Options.Generation is told of it
	jumpStmt       struct{ how flow }
)

// macroDef is what {% macro %} and {% call %} declare.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last params
	body     []stmt
	// Which of the special names the body reads; a macro only takes surplus
	// arguments that it reads.
	caller, kwargs, varargs bool
}

// target is what can be assigned to.
type target interface {
	assign(in *interp, sc *scope, v Value)
}

type (
	nameTarget  struct{ name string }
	tupleTarget struct{ items []target }
	attrTarget  struct{ obj, name string } // of a namespace
)
