package dataset

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Fields of a sample, in the order of the array that match fills.
var sampleFields = []string{"text", "messages", "prompt", "completion", "input", "preferred_output", "non_preferred_output", "tools", "weight"}

const (
	fText = iota
	fMessages
	fPrompt
	fCompletion
	fInput
	fPreferred
	fNonPreferred
	fTools
	fWeight
)

// layouts are the formats of training data with the fields that make them.
var layouts = []struct {
	format string
	fields []int
	tools  bool // tools may be declared
}{
	{General, []int{fText}, false},
	{Conversation, []int{fMessages}, true},
	{Instruction, []int{fPrompt, fCompletion}, false},
	{Preference, []int{fInput, fPreferred, fNonPreferred}, true},
}

// maxFields is how many names match can look for.
const maxFields = 10

// fields are the values of the named members of an object, 0 for those absent.
type fields [maxFields]int32

// match finds the members of an object by name. A name that comes twice is a
// reason; other is the first member with none of the names.
func (c *checker) match(obj int32, place string, names []string) (found fields, other int32, reason string) {
	d := &c.d
members:
	for m := d.first(obj); m != 0; m = d.nodes[m].next {
		for i, name := range names {
			if !d.hasKey(m, name) {
				continue
			}
			if found[i] != 0 {
				return found, other, fmt.Sprintf("%s is given twice", at(place, name))
			}
			found[i] = m
			continue members
		}
		if other == 0 {
			other = m
		}
	}
	return found, other, ""
}

// at is the name of a field inside a place, in the quotes of messages.
func at(place, field string) string {
	switch {
	case place == "":
		return "`" + field + "`"
	case field == "":
		return "`" + place + "`"
	}
	return "`" + place + "." + field + "`"
}

// show quotes a user's own text, cut to a readable length.
func show(s string) string {
	const most = 60
	if len(s) > most {
		for s = s[:most]; !utf8.ValidString(s); {
			s = s[:len(s)-1]
		}
		s += "..."
	}
	return "`" + strings.NewReplacer("\n", " ", "\r", " ", "`", "'").Replace(s) + "`"
}

// must says what a value should have been.
func (c *checker) must(n int32, place, field, want string) string {
	return fmt.Sprintf("%s must be %s, not %s", at(place, field), want, c.d.nodes[n].kind)
}

// present reports whether an optional field is there and not null.
func (c *checker) present(n int32) bool { return n != 0 && c.d.nodes[n].kind != null }

// training checks a sample to train on.
func (c *checker) training() string {
	f, other, reason := c.match(0, "", sampleFields)
	if reason != "" {
		return reason
	}
	layout, reason := c.layout(&f)
	if reason != "" {
		return reason
	}
	which := layouts[layout]
	if other != 0 {
		return fmt.Sprintf("%s is not a field of the %s format", show(c.d.key(other)), which.format)
	}
	if c.present(f[fTools]) && !which.tools {
		return fmt.Sprintf("`tools` is not a field of the %s format", which.format)
	}
	if c.report.Format == "" {
		c.report.Format = which.format
	} else if c.report.Format != which.format {
		return fmt.Sprintf("the line has the %s format, the lines before have the %s format", which.format, c.report.Format)
	}
	if reason := c.sampleWeight(f[fWeight]); reason != "" {
		return reason
	}
	if reason := c.tools(f[fTools], ""); reason != "" {
		return reason
	}
	switch which.format {
	case Conversation:
		_, reason = c.messages(f[fMessages], "messages", true)
	case Preference:
		reason = c.preference(&f)
	default:
		for _, i := range which.fields {
			if reason == "" && c.d.nodes[f[i]].kind != text {
				reason = c.must(f[i], "", sampleFields[i], "a string")
			}
		}
	}
	return reason
}

// layout finds the one format whose fields the sample has.
func (c *checker) layout(f *fields) (int, string) {
	whole, partial := -1, -1
	for i, l := range layouts {
		have := 0
		for _, field := range l.fields {
			if f[field] != 0 {
				have++
			}
		}
		switch {
		case have == 0:
			continue
		case whole >= 0 || partial >= 0:
			a := max(whole, partial)
			return 0, fmt.Sprintf("the line mixes fields of the %s and the %s format", layouts[a].format, l.format)
		case have == len(l.fields):
			whole = i
		default:
			partial = i
		}
	}
	if partial >= 0 {
		for _, field := range layouts[partial].fields {
			if f[field] == 0 {
				return 0, fmt.Sprintf("the line must contain a `%s` field, as it has the %s format", sampleFields[field], layouts[partial].format)
			}
		}
	}
	if whole < 0 {
		return 0, "the line must contain `text`, or `messages`, or `prompt` and `completion`, or `input`, `preferred_output` and `non_preferred_output`"
	}
	return whole, ""
}

// maxWeight bounds the weight of a sample, so that losses stay finite.
const maxWeight = 1e6

// sampleWeight checks the weight of a whole sample.
func (c *checker) sampleWeight(n int32) string {
	if !c.present(n) {
		return ""
	}
	if c.d.nodes[n].kind != number {
		return c.must(n, "", "weight", "a number of at least 0")
	}
	w, err := strconv.ParseFloat(string(c.d.raw(n)), 64)
	if err != nil || w < 0 {
		return fmt.Sprintf("`weight` must be a finite number of at least 0, not %s", show(string(c.d.raw(n))))
	}
	if w > maxWeight {
		return fmt.Sprintf("`weight` must be at most %g, not %s", float64(maxWeight), show(string(c.d.raw(n))))
	}
	c.report.HasSampleWeights = true
	return ""
}

var inputFields = []string{"messages", "tools", "parallel_tool_calls"}

// preference checks a pair of answers.
func (c *checker) preference(f *fields) string {
	input := f[fInput]
	if c.d.nodes[input].kind != object {
		return c.must(input, "", "input", "an object")
	}
	in, other, reason := c.match(input, "input", inputFields)
	switch {
	case reason != "":
		return reason
	case in[0] == 0:
		return "`input` must contain a `messages` field"
	case other != 0:
		return fmt.Sprintf("%s is not a field of `input`", show(c.d.key(other)))
	}
	if reason := c.tools(in[1], "input"); reason != "" {
		return reason
	}
	last, reason := c.messages(in[0], "input.messages", false)
	if reason != "" {
		return reason
	}
	if last == "assistant" {
		return "`input.messages` must not end with a message of the assistant"
	}
	for _, i := range []int{fPreferred, fNonPreferred} {
		if reason := c.output(f[i], sampleFields[i]); reason != "" {
			return reason
		}
	}
	return ""
}

// output checks one answer of a preference pair.
func (c *checker) output(n int32, name string) string {
	v := c.d.nodes[n]
	if v.kind != list {
		return c.must(n, "", name, "a list with one message")
	}
	if v.count != 1 {
		return fmt.Sprintf("`%s` must hold exactly one message, not %d", name, v.count)
	}
	place := name + "[0]"
	role, reason := c.message(c.d.first(n), place)
	if reason == "" && role != "assistant" {
		reason = fmt.Sprintf("%s must be `assistant`, not %s", at(place, "role"), show(role))
	}
	return reason
}

// batch checks a request of a batch.
func (c *checker) batch() string {
	f, _, reason := c.match(0, "", []string{"custom_id", "body"})
	switch {
	case reason != "":
		return reason
	case f[0] == 0:
		return "the line must contain a `custom_id` field"
	case c.d.nodes[f[0]].kind != text:
		return c.must(f[0], "", "custom_id", "a string")
	case f[1] == 0:
		return "the line must contain a `body` field"
	case c.d.nodes[f[1]].kind != object:
		return c.must(f[1], "", "body", "an object")
	}
	const most = 64
	if n := utf8.RuneCountInString(c.d.string(f[0])); n == 0 || n > most {
		return fmt.Sprintf("`custom_id` must have 1 to %d characters, not %d", most, n)
	}
	return ""
}
