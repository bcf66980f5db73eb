package data

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"athanor/engine/parquet"
	"athanor/engine/token"
)

// Train-on-inputs settings of EncodeOptions.
const (
	InputsTrue  = "true"
	InputsFalse = "false"
	InputsAuto  = "auto"
)

// EncodeOptions decide the tokens and weights of samples.
type EncodeOptions struct {
	// Preference takes pairs of answers, and nothing else.
	Preference bool
	// TrainOnInputs says whether prompts and the turns of others carry loss.
	// "auto" and "" are "false". Texts and preferences know no such choice.
	TrainOnInputs string
	// MaxSeqLength cuts sequences after so many tokens, 0 = never.
	MaxSeqLength int
}

func (o *EncodeOptions) check() error {
	switch o.TrainOnInputs {
	case "", InputsTrue, InputsFalse, InputsAuto:
	default:
		return fmt.Errorf("train_on_inputs must be true, false or auto, not %q", o.TrainOnInputs)
	}
	if o.MaxSeqLength < 0 || o.MaxSeqLength == 1 {
		return fmt.Errorf("max_seq_length must be at least 2, not %d", o.MaxSeqLength)
	}
	return nil
}

// Sample is a sequence of tokens with the weight of predicting each; that of the
// first is 0, as nothing comes before it.
type Sample struct {
	Tokens  []int32
	Weights []float32
}

// trained counts the tokens that carry loss.
func (s *Sample) trained() (n int) {
	for _, w := range s.Weights {
		if w > 0 {
			n++
		}
	}
	return n
}

// Encoder turns lines into samples. It is safe for concurrent use.
type Encoder struct {
	m *textModel
	o EncodeOptions
}

// NewEncoder reads the tokenizer, the chat template and the configuration of a
// model's folder.
func NewEncoder(model fs.FS, o EncodeOptions) (*Encoder, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := openText(model)
	if err != nil {
		return nil, err
	}
	return &Encoder{m, o}, nil
}

// Context is the longest sequence that the model reads, 0 when its files do not say.
func (e *Encoder) Context() int { return e.m.context }

// Encoded is what a line becomes.
type Encoded struct {
	Format string
	// Samples are one, or the chosen and the rejected one of a preference pair,
	// or none for a line whose weight is 0.
	Samples   []Sample
	Lengths   []int // of the samples, before they were cut
	Truncated bool  // cut at MaxSeqLength
	// LeftOut says that nothing which carries loss lies before the cut, in the one
	// sample or in one of a pair: there is nothing to train on.
	LeftOut bool
}

// Line encodes one line of a JSONL file. Errors say in words for the user what is
// wrong with it, without its number.
func (e *Encoder) Line(b []byte) (Encoded, error) {
	l, format, err := parseLine(b)
	out := Encoded{Format: format}
	if err != nil {
		return out, err
	}
	if e.o.Preference != (format == FormatPreference) {
		if e.o.Preference {
			return out, fmt.Errorf("preference optimisation needs the preference format, and the line has the %s format", format)
		}
		return out, errors.New("the line has the preference format, which is only for preference optimisation (method dpo)")
	}
	weight := 1.0
	if l.Weight != nil {
		weight = *l.Weight
	}
	if weight == 0 {
		return out, nil
	}
	if out.Samples, err = e.samples(l, format); err != nil {
		return out, err
	}
	return out, e.finish(&out, weight)
}

// Row encodes one row of a Parquet file. The file decides what carries loss, so
// TrainOnInputs has no effect; padding is left out.
func (e *Encoder) Row(r *parquet.Row) (Encoded, error) {
	out := Encoded{Format: FormatTokens}
	if reason := r.Problem(); reason != "" {
		return out, errors.New(reason)
	}
	if e.o.Preference {
		return out, errors.New("preference optimisation needs the preference format, and the file holds tokens")
	}
	from, to := r.Attended()
	s := Sample{Tokens: make([]int32, to-from), Weights: make([]float32, to-from)}
	for i := from; i < to; i++ {
		s.Tokens[i-from] = int32(r.InputIDs[i])
		if r.Trained(i) {
			s.Weights[i-from] = 1
		}
	}
	out.Samples = []Sample{s.noFirst()}
	return out, e.finish(&out, 1)
}

func (e *Encoder) samples(l *line, format string) ([]Sample, error) {
	switch format {
	case FormatText:
		return one(e.text(*l.Text))
	case FormatInstruction:
		return one(e.instruction(*l.Prompt, *l.Completion))
	case FormatConversation:
		turns, err := readTurns(l.Messages, "messages")
		if err != nil {
			return nil, err
		}
		return one(e.conversation(turns, l.Tools, e.o.TrainOnInputs == InputsTrue))
	}
	return e.pair(l)
}

func one(s Sample, err error) ([]Sample, error) { return []Sample{s}, err }

// finish cuts, weighs and checks the samples.
func (e *Encoder) finish(out *Encoded, weight float64) error {
	for i := range out.Samples {
		s := &out.Samples[i]
		whole := s.trained()
		out.Lengths = append(out.Lengths, len(s.Tokens))
		if most := e.o.MaxSeqLength; most > 0 && len(s.Tokens) > most {
			s.Tokens, s.Weights, out.Truncated = s.Tokens[:most], s.Weights[:most], true
		}
		switch {
		case whole == 0:
			return errors.New("no token of this sample carries loss")
		case s.trained() == 0:
			out.LeftOut = true
		}
		for j := range s.Weights {
			s.Weights[j] = float32(float64(s.Weights[j]) * weight)
		}
		for _, id := range s.Tokens {
			if id < 0 || int(id) >= e.m.limit {
				return fmt.Errorf("the token %d is outside of the model's vocabulary of %d", id, e.m.limit)
			}
		}
	}
	return nil
}

// text is a whole text to learn, between what the tokenizer puts around texts.
func (e *Encoder) text(s string) (Sample, error) {
	return e.plain([]token.Part{{Text: s, Class: trainedClass}})
}

// instruction is a conversation of two messages; for a model without a chat
// template the completion simply follows the prompt.
func (e *Encoder) instruction(ask, answer string) (Sample, error) {
	inputs := e.o.TrainOnInputs == InputsTrue
	if e.m.template == nil {
		parts := []token.Part{{Text: ask}, {Text: answer, Class: trainedClass}}
		if inputs {
			parts[0].Class = trainedClass
		}
		return e.plain(parts)
	}
	turns := make([]turn, 2)
	for i, w := range []wireMessage{{Role: "user", Content: &ask}, {Role: "assistant", Content: &answer}} {
		m, err := newMessage(&w)
		if err != nil {
			return Sample{}, err
		}
		turns[i] = turn{role: w.Role, weight: 1, object: m, text: m}
	}
	return e.conversation(turns, nil, inputs)
}

// plain encodes text outside of any template. The end of the text carries loss:
// it is how the model learns to stop.
func (e *Encoder) plain(parts []token.Part) (Sample, error) {
	ids, classes := e.m.tokenizer.EncodeParts(parts)
	before, after := e.m.tokenizer.Surround()
	s := Sample{Tokens: slices.Concat(before, ids, after)}
	s.Weights = make([]float32, len(s.Tokens), len(s.Tokens)+1)
	for i, class := range classes {
		s.Weights[len(before)+i] = float32(class)
	}
	for i := range after {
		s.Weights[len(before)+len(ids)+i] = 1
	}
	e.m.finishText(&s)
	return s.noFirst(), nil
}

// finishText puts the end-of-text token after a sample that has none.
func (m *textModel) finishText(s *Sample) {
	if n := len(s.Tokens); m.end >= 0 && (n == 0 || !slices.Contains(m.stops, s.Tokens[n-1])) {
		s.Tokens, s.Weights = append(s.Tokens, m.end), append(s.Weights, 1)
	}
}

func (s Sample) noFirst() Sample {
	if len(s.Weights) > 0 {
		s.Weights[0] = 0
	}
	return s
}

// Classes of text: 0 carries no loss, the others are numbers of weights.
const (
	trainedClass = 1
	maxClasses   = token.MaxClass
)

// mask collects which stretches of a rendering carry loss.
type mask struct {
	base    uint8
	spans   []maskSpan
	weights []float64 // by class
}

type maskSpan struct {
	from, to int
	class    uint8
}

func newMask(all bool) *mask {
	m := &mask{weights: []float64{0, 1}}
	if all {
		m.base = trainedClass
	}
	return m
}

// add gives [from, to) a weight. Spans come in order.
func (m *mask) add(from, to int, weight float64) error {
	class := slices.Index(m.weights, weight)
	if class < 0 {
		if class = len(m.weights); class > maxClasses {
			return fmt.Errorf("the sample has more than %d different weights of messages", maxClasses)
		}
		m.weights = append(m.weights, weight)
	}
	if n := len(m.spans); n > 0 && from < m.spans[n-1].to {
		return errors.New("the model's chat template mixes the messages, so that the tokens that carry loss cannot be told")
	}
	m.spans = append(m.spans, maskSpan{from, to, uint8(class)})
	return nil
}

// parts cuts a rendering at the borders of the mask.
func (m *mask) parts(r *rendering) (parts []token.Part) {
	at, k := 0, 0
	for _, s := range r.segments {
		for rest := s.Text; rest != ""; {
			for k < len(m.spans) && m.spans[k].to <= at {
				k++
			}
			class, n := m.base, len(rest)
			if k < len(m.spans) {
				if sp := m.spans[k]; at >= sp.from {
					class, n = sp.class, min(n, sp.to-at)
				} else {
					n = min(n, sp.from-at)
				}
			}
			parts = append(parts, token.Part{Text: rest[:n], Trusted: s.Trusted, Class: class})
			at, rest = at+n, rest[n:]
		}
	}
	return parts
}

// conversation encodes a conversation whose answers are learned, or all of it.
func (e *Encoder) conversation(turns []turn, tools []jsontext.Value, inputs bool) (Sample, error) {
	c, err := newConversation(e.m, turns, tools)
	if err != nil {
		return Sample{}, err
	}
	whole, err := c.render(len(turns), false)
	if err != nil {
		return Sample{}, err
	}
	m := newMask(inputs)
	if err := c.maskTurns(whole, m, inputs); err != nil {
		return Sample{}, err
	}
	return e.masked(whole, m, lossWeight(&turns[len(turns)-1], inputs))
}

// lossWeight is the weight of the tokens of a turn.
func lossWeight(t *turn, inputs bool) float64 {
	if !inputs && t.role != "assistant" {
		return 0
	}
	return t.weight
}

// maskTurns adds the turns whose weight is not that of the rest.
func (c *conversation) maskTurns(whole *rendering, m *mask, inputs bool) error {
	if !inputs && whole.generated != nil {
		return c.maskGenerated(whole, m)
	}
	for i := range c.turns {
		weight := lossWeight(&c.turns[i], inputs)
		if weight == m.weights[m.base] {
			continue
		}
		from, to, err := c.span(whole, i)
		if err != nil {
			return err
		}
		if err := m.add(from, to, weight); err != nil {
			return err
		}
	}
	return nil
}

// maskGenerated takes the generation blocks of the template, one for each answer.
func (c *conversation) maskGenerated(whole *rendering, m *mask) error {
	var weights []float64
	for _, t := range c.turns {
		if t.role == "assistant" {
			weights = append(weights, t.weight)
		}
	}
	if len(weights) != len(whole.generated) {
		return fmt.Errorf("the model's chat template marks %d stretches of text as generated in a conversation of %d answers", len(whole.generated), len(weights))
	}
	for i, g := range whole.generated {
		if weights[i] != 0 {
			if err := m.add(g[0], g[1], weights[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// masked encodes a rendering. last is the weight of its last turn.
func (e *Encoder) masked(r *rendering, m *mask, last float64) (Sample, error) {
	ids, classes := e.m.tokenizer.EncodeParts(m.parts(r))
	s := Sample{Tokens: ids, Weights: make([]float32, len(ids))}
	for i := 0; i < len(ids); {
		j := i
		for j < len(ids) && classes[j] == classes[i] {
			j++
		}
		end := j
		if classes[i] != m.base {
			end = i + e.m.said(ids[i:j])
		}
		for k := i; k < end; k++ {
			s.Weights[k] = float32(m.weights[classes[i]])
		}
		i = j
	}
	if last > 0 && e.m.end >= 0 && !e.m.ends(ids) {
		s.Tokens, s.Weights = append(s.Tokens, e.m.end), append(s.Weights, float32(last))
	}
	return s.noFirst(), nil
}

// said is how many tokens of a turn the model says itself: up to the token at
// which serving stops. What the template writes behind it, a line feed for
// instance, is never asked of a model.
func (m *textModel) said(ids []token.ID) int {
	tail := m.tail(ids)
	for i := tail; i < len(ids); i++ {
		if slices.Contains(m.stops, ids[i]) {
			return i + 1
		}
	}
	for i := len(ids) - 1; i >= tail; i-- {
		if m.tokenizer.IsControl(ids[i]) {
			return i + 1
		}
	}
	return len(ids)
}

// ends reports whether a special token ends the text, white space aside.
func (m *textModel) ends(ids []token.ID) bool {
	return slices.ContainsFunc(ids[m.tail(ids):], m.tokenizer.IsControl)
}

// tail is where the special tokens and white space at the end begin.
func (m *textModel) tail(ids []token.ID) int {
	i := len(ids)
	for i > 0 && (m.tokenizer.IsControl(ids[i-1]) || strings.TrimSpace(string(m.tokenizer.Bytes(ids[i-1]))) == "") {
		i--
	}
	return i
}

func trustedParts(s string) []token.Part { return []token.Part{{Text: s, Trusted: true}} }

// pair encodes the chosen and the rejected answer to one prompt.
func (e *Encoder) pair(l *line) ([]Sample, error) {
	prefix, err := readTurns(l.Input.Messages, "input.messages")
	if err != nil {
		return nil, err
	}
	tools := l.Tools
	if l.Input.Tools != nil {
		tools = l.Input.Tools
	}
	var pair []Sample
	for _, side := range []struct {
		name   string
		answer []jsontext.Value
	}{{"preferred_output", l.Preferred}, {"non_preferred_output", l.NonPreferred}} {
		answer, err := readTurns(side.answer, side.name)
		if err != nil {
			return nil, err
		}
		if answer[0].role != "assistant" {
			return nil, fmt.Errorf("`%s[0].role` must be `assistant`", side.name)
		}
		s, err := e.answer(slices.Concat(prefix, answer), tools)
		if err != nil {
			return nil, fmt.Errorf("`%s`: %w", side.name, err)
		}
		pair = append(pair, s)
	}
	return pair, nil
}

// answer encodes a conversation of which only the last turn is learned.
func (e *Encoder) answer(turns []turn, tools []jsontext.Value) (Sample, error) {
	for i := range turns {
		turns[i].weight = 0
	}
	turns[len(turns)-1].weight = 1
	return e.conversation(turns, tools, false)
}
