package jinja

// Limits bounds one rendering. A zero field takes the value of DefaultLimits.
type Limits struct {
	Steps  int64 // expressions evaluated, plus scanning and copying work
	Bytes  int64 // bytes of all strings and lists made on the way
	Output int64 // bytes of the rendered text
	String int64 // bytes of any one string
	Depth  int64 // macro calls inside each other, and nesting of values walked
}

// Sizes that do not depend on the input.
const (
	maxSource = 1 << 20 // bytes of template source
	maxTokens = 200_000 // tokens of one source
	maxNest   = 800     // nesting of statements and expressions, chains included
	maxRange  = 100_000 // elements of range(), as in Jinja2's sandbox
	maxBits   = 14_000  // size of an integer, about Python's 4300 digits
	maxDepth  = 200     // macro calls inside each other; nesting of data
)

// DefaultLimits returns the budget for data of the given size: enough for any
// honest template (whose work grows with the data), and for a hostile one an
// end within a fraction of a second. items is the number of messages and tools,
// bytes the size of their JSON.
func DefaultLimits(items, bytes int) Limits {
	n, b := int64(items), int64(bytes)
	return Limits{
		Steps:  150_000 + 2_000*n + b/2,
		Bytes:  32<<20 + 64*b,
		Output: 4<<20 + 8*b,
		String: 4<<20 + 8*b,
		Depth:  maxDepth,
	}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits(0, 0)
	set := func(v *int64, def int64) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&l.Steps, d.Steps)
	set(&l.Bytes, d.Bytes)
	set(&l.Output, d.Output)
	set(&l.String, d.String)
	set(&l.Depth, d.Depth)
	return l
}

// budget is what is left of Limits while rendering.
type budget struct {
	lim   Limits
	steps int64
	bytes int64
	depth int64
}

// tick spends n steps.
func (b *budget) tick(n int) {
	b.steps += int64(n)
	if b.steps > b.lim.Steps {
		panic(&LimitError{What: "steps", Limit: b.lim.Steps})
	}
}

// scan spends the steps for looking at n bytes.
func (b *budget) scan(n int) { b.tick(1 + n/64) }

// grow spends n bytes of memory.
func (b *budget) grow(n int) {
	b.bytes += int64(n)
	if b.bytes > b.lim.Bytes {
		panic(&LimitError{What: "bytes", Limit: b.lim.Bytes})
	}
}

// list spends what n new list elements cost.
func (b *budget) list(n int) {
	b.grow(16 * n)
	b.tick(1 + n/16)
}

// fits refuses one string that would be too long, before it is made.
func (b *budget) fits(n int64) {
	if n > b.lim.String {
		panic(&LimitError{What: "string bytes", Limit: b.lim.String})
	}
}

// enter and leave bracket a macro call or one level of walked data.
func (b *budget) enter() {
	b.depth++
	if b.depth > b.lim.Depth {
		panic(&LimitError{What: "levels of depth", Limit: b.lim.Depth})
	}
}

func (b *budget) leave() { b.depth-- }
