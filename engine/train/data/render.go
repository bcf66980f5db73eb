package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"athanor/engine/prompt"
)

// rendering is a rendered conversation.
type rendering struct {
	text      string
	segments  []prompt.Segment
	generated [][2]int
}

// common is the length of the longest beginning that two renderings share.
func (r *rendering) common(o *rendering) int {
	n := 0
	for n < len(r.text) && n < len(o.text) && r.text[n] == o.text[n] {
		n++
	}
	return n
}

// trustedFrom reports whether all text from n on is the template's.
func (r *rendering) trustedFrom(n int) bool {
	at := 0
	for _, s := range r.segments {
		if at += len(s.Text); at > n && !s.Trusted {
			return false
		}
	}
	return true
}

// dataAt is where the stretch of data around byte n begins, or -1 when that byte
// is the template's.
func (r *rendering) dataAt(n int) int {
	at := 0
	for _, s := range r.segments {
		begin := at
		if at += len(s.Text); at > n {
			if s.Trusted {
				return -1
			}
			return begin
		}
	}
	return -1
}

// maxWork bounds the bytes rendered for one sample: a conversation is rendered up
// to each of its answers, which grows with the square of their number.
const maxWork = 256 << 20

// conversation renders the beginnings of one conversation.
type conversation struct {
	m     *textModel
	turns []turn
	tools []json.RawMessage
	asTxt bool // tool arguments as text
	work  int
	memo  map[int]*rendering // without a generation prompt
}

var errNoTemplate = errors.New("the model has no chat template: conversations cannot be rendered for it; use the instruction or text format")

func newConversation(m *textModel, turns []turn, tools []jsontext.Value) (*conversation, error) {
	if m.template == nil {
		return nil, errNoTemplate
	}
	c := &conversation{m: m, turns: turns, memo: map[int]*rendering{}}
	for _, t := range tools {
		c.tools = append(c.tools, json.RawMessage(t))
	}
	_, err := c.render(len(turns), false)
	if failed := (*prompt.RuntimeError)(nil); errors.As(err, &failed) {
		// A template that joins arguments to text fails on an object.
		first := err
		c.asTxt = true
		if _, err = c.render(len(turns), false); err != nil {
			err = first
		}
	}
	return c, err
}

// render renders the first n turns.
func (c *conversation) render(n int, ask bool) (*rendering, error) {
	if r := c.memo[n]; r != nil && !ask {
		return r, nil
	}
	in := prompt.Input{Tools: c.tools, AddGenerationPrompt: ask, BOS: c.m.bos, EOS: c.m.eos, Now: templateDate}
	for _, t := range c.turns[:n] {
		if c.asTxt {
			in.Messages = append(in.Messages, t.text)
		} else {
			in.Messages = append(in.Messages, t.object)
		}
	}
	out, err := c.m.template.Render(in)
	if err != nil {
		return nil, fmt.Errorf("the model's chat template fails on the first %d messages: %w", n, err)
	}
	r := &rendering{text: out.String(), segments: out.Segments, generated: out.Generated}
	if c.work += len(r.text); c.work > maxWork {
		return nil, errors.New("the conversation is too long for its number of answers: split it")
	}
	if !ask && n == len(c.turns) {
		c.memo[n] = r
	}
	return r, nil
}

// span is where turn i stands in the whole rendering: [from, to).
func (c *conversation) span(whole *rendering, i int) (from, to int, err error) {
	if from, err = c.start(whole, i); err != nil {
		return 0, 0, err
	}
	if i == len(c.turns)-1 {
		return from, len(whole.text), nil
	}
	to, err = c.end(whole, i, from)
	return from, to, err
}

// start is where turn i begins.
func (c *conversation) start(whole *rendering, i int) (int, error) {
	assistant := c.turns[i].role == "assistant"
	if i == 0 && !assistant {
		return 0, nil
	}
	before, err := c.render(i, assistant)
	if err != nil {
		return 0, err
	}
	n := whole.common(before)
	if n == len(before.text) {
		return n, nil
	}
	// The generation prompt may end with more than what stands before an answer,
	// such as an opened thought. The answer then begins with its first data, and
	// nothing but the template's own text is missing from the prompt.
	n = whole.dataAt(n)
	if !assistant || n < 0 || !before.trustedFrom(n) {
		return 0, fmt.Errorf("the model's chat template writes what is before `messages[%d]` in another way when that message follows, so that the tokens that carry loss cannot be told", i)
	}
	return n, nil
}

// end is where turn i, which is not the last and begins at from, ends.
func (c *conversation) end(whole *rendering, i, from int) (int, error) {
	alone, err := c.render(i+1, false)
	if err != nil {
		return 0, err
	}
	if whole.common(alone) == len(alone.text) && len(alone.text) >= from {
		return len(alone.text), nil
	}
	// The template writes the turn in another way when messages follow it. The
	// end of a turn is then found by the text that ends it when it is last.
	first, err := c.start(alone, i)
	if err != nil {
		return 0, err
	}
	limit := len(whole.text)
	for j := i + 1; j < len(c.turns); j++ {
		if c.turns[j].role == "assistant" {
			if limit, err = c.start(whole, j); err != nil {
				return 0, err
			}
			break
		}
	}
	for _, ending := range c.m.endings(alone) {
		if len(alone.starts(ending, first, len(alone.text))) != 1 {
			continue // the turn holds this text more than once: it ends nothing
		}
		if at := whole.starts(ending, from, limit); len(at) > 0 {
			return at[0] + len(ending), nil
		}
	}
	return 0, fmt.Errorf("the model's chat template writes `messages[%d]` in another way when messages follow it, so that the tokens that carry loss cannot be told: split the conversation into samples with one answer each", i)
}

// starts lists the places in [from, limit) where a trusted segment begins, or
// goes on at from, with the given text.
func (r *rendering) starts(text string, from, limit int) (at []int) {
	end := 0
	for _, s := range r.segments {
		begin := max(end, from)
		end += len(s.Text)
		if s.Trusted && begin < min(end, limit) && strings.HasPrefix(r.text[begin:end], text) {
			at = append(at, begin)
		}
	}
	return at
}

// endings are the texts that may end the last turn of r, the longest first: the
// template's text after the last of the data, up to each special token in it.
func (m *textModel) endings(r *rendering) (list []string) {
	n := len(r.segments)
	if n == 0 || !r.segments[n-1].Trusted {
		return nil
	}
	tail := r.segments[n-1].Text
	ids, _ := m.tokenizer.EncodeParts(trustedParts(tail))
	at := 0
	for _, id := range ids {
		if !m.tokenizer.IsControl(id) {
			continue
		}
		spelling, _ := m.tokenizer.Token(id)
		k := strings.Index(tail[at:], spelling)
		if k < 0 {
			break
		}
		at += k + len(spelling)
		list = append([]string{tail[:at]}, list...)
	}
	return list
}
