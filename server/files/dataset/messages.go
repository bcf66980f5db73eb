package dataset

import "fmt"

// Fields of a message, in the order of the array that match fills. Others are
// let through, as the public clients do: training does not see them.
var messageFields = []string{"role", "content", "weight", "tool_calls", "reasoning", "reasoning_content", "tool_call_id", "name"}

const (
	mRole = iota
	mContent
	mWeight
	mToolCalls
	mReasoning
	mReasoningContent
	mToolCallID
	mName
)

// messages checks a conversation and returns the role of its last message. An
// answer of the assistant has to be there where there is something to learn.
func (c *checker) messages(n int32, place string, answered bool) (last, reason string) {
	v := c.d.nodes[n]
	if v.kind != list {
		return "", c.must(n, "", place, "a list of messages")
	}
	if v.count == 0 {
		return "", fmt.Sprintf("`%s` must not be empty", place)
	}
	i := 0
	found := false
	for m := c.d.first(n); m != 0; m = c.d.nodes[m].next {
		role, reason := c.messageAt(m, place, i)
		if reason != "" {
			return "", reason
		}
		if role == last && role != "tool" {
			return "", fmt.Sprintf("`%s[%d].role` must not be `%s` again: after an optional system message the roles take turns", place, i, role)
		}
		found = found || role == "assistant"
		last = role
		i++
	}
	if answered && !found {
		return "", fmt.Sprintf("`%s` must contain a message of the assistant", place)
	}
	return last, ""
}

// messageAt checks the message number i of a list. Its place is only written
// when there is something to say about it, which is rare.
func (c *checker) messageAt(m int32, place string, i int) (role, reason string) {
	if role, reason = c.message(m, ""); reason != "" {
		_, reason = c.message(m, fmt.Sprintf("%s[%d]", place, i))
	}
	return role, reason
}

// message checks one message and returns its role.
func (c *checker) message(m int32, place string) (role, reason string) {
	if c.d.nodes[m].kind != object {
		return "", c.must(m, place, "", "an object")
	}
	f, _, reason := c.match(m, place, messageFields)
	if reason != "" {
		return "", reason
	}
	if role, reason = c.role(f[mRole], place); reason != "" {
		return "", reason
	}
	for _, check := range []string{
		c.messageWeight(f[mWeight], place), c.reasoning(&f, role, place), c.toolCalls(f[mToolCalls], role, place),
		c.optionalString(f[mToolCallID], place, "tool_call_id"), c.optionalString(f[mName], place, "name"),
	} {
		if check != "" {
			return "", check
		}
	}
	return role, c.content(&f, role, place)
}

// role checks the author of a message.
func (c *checker) role(n int32, place string) (role, reason string) {
	if n == 0 {
		return "", fmt.Sprintf("%s must contain a `role` field", at(place, ""))
	}
	if c.d.nodes[n].kind != text {
		return "", c.must(n, place, "role", "a string")
	}
	for _, role := range []string{"user", "assistant", "system", "tool"} {
		if c.equal(n, role) {
			return role, ""
		}
	}
	return "", fmt.Sprintf("%s must be `system`, `user`, `assistant` or `tool`, not %s", at(place, "role"), show(c.d.string(n)))
}

// equal compares a string without decoding it where that can be.
func (c *checker) equal(n int32, s string) bool {
	if c.d.nodes[n].escaped {
		return c.d.string(n) == s
	}
	return string(c.d.raw(n)) == s
}

// messageWeight checks whether a message carries loss: 0 or 1, as integers.
func (c *checker) messageWeight(n int32, place string) string {
	if !c.present(n) {
		return ""
	}
	if c.d.nodes[n].kind != number {
		return c.must(n, place, "weight", "0 or 1")
	}
	if raw := string(c.d.raw(n)); raw != "0" && raw != "1" {
		return fmt.Sprintf("%s must be 0 or 1, not %s", at(place, "weight"), show(raw))
	}
	c.report.HasMessageWeights = true
	return ""
}

// reasoning checks the thoughts of the assistant.
func (c *checker) reasoning(f *fields, role, place string) string {
	for _, i := range []int{mReasoning, mReasoningContent} {
		if !c.present(f[i]) {
			continue
		}
		name := messageFields[i]
		if c.d.nodes[f[i]].kind != text {
			return c.must(f[i], place, name, "a string")
		}
		if role != "assistant" {
			return fmt.Sprintf("%s is only for messages of the assistant, not of the %s", at(place, name), role)
		}
		c.report.HasReasoning = true
	}
	if c.present(f[mReasoning]) && c.present(f[mReasoningContent]) {
		return fmt.Sprintf("%s must not have both `reasoning` and `reasoning_content`", at(place, ""))
	}
	return ""
}

func (c *checker) optionalString(n int32, place, field string) string {
	if c.present(n) && c.d.nodes[n].kind != text {
		return c.must(n, place, field, "a string")
	}
	return ""
}

// content checks what a message says.
func (c *checker) content(f *fields, role, place string) string {
	n := f[mContent]
	if !c.present(n) {
		if role == "assistant" && (c.present(f[mToolCalls]) || c.present(f[mReasoning]) || c.present(f[mReasoningContent])) {
			return ""
		}
		if n != 0 {
			return c.must(n, place, "content", "a string or a list of parts")
		}
		return fmt.Sprintf("%s must contain a `content` field", at(place, ""))
	}
	switch v := c.d.nodes[n]; {
	case v.kind == text:
		return ""
	case v.kind != list:
		return c.must(n, place, "content", "a string or a list of parts")
	case v.count == 0:
		return fmt.Sprintf("%s must not be an empty list", at(place, "content"))
	}
	i := 0
	for p := c.d.first(n); p != 0; p = c.d.nodes[p].next {
		if reason := c.part(p, fmt.Sprintf("content[%d]", i), place); reason != "" {
			return reason
		}
		i++
	}
	return ""
}

// part checks one part of a content.
func (c *checker) part(p int32, name, place string) string {
	if c.d.nodes[p].kind != object {
		return c.must(p, place, name, "an object")
	}
	f, _, reason := c.match(p, place+"."+name, []string{"type", "text"})
	switch {
	case reason != "":
		return reason
	case f[0] == 0:
		return fmt.Sprintf("%s must contain a `type` field", at(place, name))
	case c.d.nodes[f[0]].kind != text:
		return c.must(f[0], place, name+".type", "a string")
	case c.equal(f[0], "image_url"):
		c.report.Multimodal = true
		return fmt.Sprintf("%s is an image: training on images is not supported", at(place, name))
	case !c.equal(f[0], "text"):
		return fmt.Sprintf("%s must be `text`, not %s", at(place, name+".type"), show(c.d.string(f[0])))
	case f[1] == 0:
		return fmt.Sprintf("%s must contain a `text` field", at(place, name))
	case c.d.nodes[f[1]].kind != text:
		return c.must(f[1], place, name+".text", "a string")
	}
	return ""
}

// toolCalls checks the calls that the assistant makes.
func (c *checker) toolCalls(n int32, role, place string) string {
	if !c.present(n) {
		return ""
	}
	v := c.d.nodes[n]
	switch {
	case v.kind != list:
		return c.must(n, place, "tool_calls", "a list")
	case role != "assistant":
		return fmt.Sprintf("%s is only for messages of the assistant, not of the %s", at(place, "tool_calls"), role)
	case v.count == 0:
		return fmt.Sprintf("%s must not be empty", at(place, "tool_calls"))
	}
	i := 0
	for t := c.d.first(n); t != 0; t = c.d.nodes[t].next {
		f, reason := c.function(t, place, fmt.Sprintf("tool_calls[%d]", i))
		if reason != "" {
			return reason
		}
		name := fmt.Sprintf("tool_calls[%d].function", i)
		switch args := f[fnArguments]; {
		case args == 0:
			return fmt.Sprintf("%s must contain an `arguments` field", at(place, name))
		case c.d.nodes[args].kind != text && c.d.nodes[args].kind != object:
			return c.must(args, place, name+".arguments", "a string or an object")
		}
		i++
	}
	c.report.HasTools = true
	c.report.HasParallelToolCalls = c.report.HasParallelToolCalls || v.count > 1
	return ""
}

// tools checks the declaration of functions.
func (c *checker) tools(n int32, place string) string {
	if !c.present(n) {
		return ""
	}
	if c.d.nodes[n].kind != list {
		return c.must(n, place, "tools", "a list")
	}
	i := 0
	for t := c.d.first(n); t != 0; t = c.d.nodes[t].next {
		f, reason := c.function(t, place, fmt.Sprintf("tools[%d]", i))
		if reason != "" {
			return reason
		}
		name := fmt.Sprintf("tools[%d].function", i)
		if p := f[fnParameters]; c.present(p) && c.d.nodes[p].kind != object {
			return c.must(p, place, name+".parameters", "an object")
		}
		if reason := c.optionalString(f[fnDescription], place, name+".description"); reason != "" {
			return reason
		}
		i++
	}
	c.report.HasTools = c.report.HasTools || i > 0
	return ""
}

var functionFields = []string{"name", "arguments", "parameters", "description"}

const (
	fnName = iota
	fnArguments
	fnParameters
	fnDescription
)

// function checks {"type": "function", "function": {"name": ...}} and returns the
// fields of the inner object. The type may be absent.
func (c *checker) function(n int32, place, name string) (f fields, reason string) {
	if c.d.nodes[n].kind != object {
		return f, c.must(n, place, name, "an object")
	}
	inner := name
	if place != "" {
		inner = place + "." + name
	}
	outer, _, reason := c.match(n, inner, []string{"type", "function"})
	switch kind := outer[0]; {
	case reason != "":
		return f, reason
	case c.present(kind) && c.d.nodes[kind].kind != text:
		return f, c.must(kind, place, name+".type", "a string")
	case c.present(kind) && !c.equal(kind, "function"):
		return f, fmt.Sprintf("%s must be `function`, not %s", at(place, name+".type"), show(c.d.string(kind)))
	case outer[1] == 0:
		return f, fmt.Sprintf("%s must contain a `function` field", at(place, name))
	case c.d.nodes[outer[1]].kind != object:
		return f, c.must(outer[1], place, name+".function", "an object")
	}
	if f, _, reason = c.match(outer[1], inner+".function", functionFields); reason != "" {
		return f, reason
	}
	switch {
	case f[fnName] == 0:
		return f, fmt.Sprintf("%s must contain a `name` field", at(place, name+".function"))
	case c.d.nodes[f[fnName]].kind != text:
		return f, c.must(f[fnName], place, name+".function.name", "a string")
	case len(c.d.raw(f[fnName])) == 0:
		return f, fmt.Sprintf("%s must not be empty", at(place, name+".function.name"))
	}
	return f, ""
}
