package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"athanor/engine"
	"athanor/engine/kv"
	"athanor/engine/sample"
	"athanor/engine/sched"
)

// loop plans and runs steps until ctx ends. It owns m.rows and m.batch.
func (m *Model) loop(ctx context.Context) {
	defer close(m.stopped)
	lastPrefill := false
	for ctx.Err() == nil {
		m.reap()
		step := sched.Plan(m.state(lastPrefill))
		lastPrefill = step.Prefill > 0
		switch {
		case step.Idle():
			select {
			case <-m.wake:
			case <-ctx.Done():
			}
		case step.Prefill > 0:
			m.prefill(ctx, step)
		default:
			m.decode(ctx)
		}
	}
	m.abandon(engine.ErrUnavailable)
}

func (m *Model) state(lastPrefill bool) sched.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := sched.State{
		Waiting: len(m.waiting), Free: m.rows.Free(), Decoding: len(m.rows.Decoding()),
		Chunk: m.batch.chunk, LastPrefill: lastPrefill,
	}
	seq, _, prefilling := m.rows.Prefilling()
	if !prefilling && len(m.waiting) > 0 {
		seq = m.waiting[0]
	}
	if seq != nil {
		s.Prefilling, s.Remaining = prefilling, len(seq.prompt)-seq.read
		if seq.wantsEcho() {
			s.Chunk = min(s.Chunk, echoRows)
		}
	}
	return s
}

// reap drops the sequences of cancelled requests.
func (m *Model) reap() {
	m.mu.Lock()
	kept := m.waiting[:0]
	for _, s := range m.waiting {
		if !s.cancelled.Load() {
			kept = append(kept, s)
		}
	}
	clear(m.waiting[len(kept):])
	m.waiting = kept
	m.mu.Unlock()
	for _, s := range m.running() {
		if s.cancelled.Load() {
			m.release(s)
		}
	}
}

// running lists the sequences that hold a row.
func (m *Model) running() []*sequence {
	list := append([]*sequence(nil), m.rows.Decoding()...)
	if s, _, ok := m.rows.Prefilling(); ok {
		list = append(list, s)
	}
	return list
}

// release frees the row of s and moves others into the hole.
func (m *Model) release(s *sequence) {
	for _, move := range m.rows.Remove(s) {
		used := 0
		for _, other := range m.running() {
			if row, _ := m.rows.Row(other); row == move.To {
				used = other.cached
			}
		}
		m.batch.move(move, used)
	}
}

// prefill reads the next chunk of the prompt that is being read, after
// admitting the first waiting sequence when the step says so.
func (m *Model) prefill(ctx context.Context, step sched.Step) {
	if step.Admit {
		m.admit()
	}
	s, row, ok := m.rows.Prefilling()
	if !ok || step.Admit && m.share(s, row) {
		return
	}
	chunk := s.prompt[s.read : s.read+step.Prefill]
	want := []int{len(chunk) - 1}
	if s.wantsEcho() && s.choice == 0 {
		want = want[:0]
		for i := range chunk {
			want = append(want, i)
		}
	}
	logits, err := m.batch.prefill(ctx, row, s.read, chunk, want, s.adapter)
	if ctx.Err() != nil {
		return // the model closes: abandon tells everybody
	}
	if err != nil {
		m.fail(s.request, err)
		return
	}
	if len(want) > 1 || s.wantsEcho() && s.choice == 0 {
		m.echo(s, logits)
	}
	s.read += len(chunk)
	s.cached = s.read
	if s.read < len(s.prompt) {
		return
	}
	s.start()
	m.rows.Promote()
	last := logits[len(logits)-1]
	if s.spec.N > 1 && s.first == nil {
		s.first = slices.Clone(last)
	}
	m.next(s, last)
}

// share gives a further choice what another choice of the request, which still
// holds a row, has read of their prompt. It reports false when there is none.
func (m *Model) share(s *sequence, row int) bool {
	for from, other := range m.rows.Decoding() {
		if other.request == s.request && s.first != nil {
			m.batch.move(kv.Move{From: from, To: row}, len(s.prompt))
			s.read, s.cached = len(s.prompt), len(s.prompt)
			m.rows.Promote()
			m.next(s, slices.Clone(s.first))
			return true
		}
	}
	return false
}

// admit gives a row and its adapter to the first waiting sequence.
func (m *Model) admit() {
	m.mu.Lock()
	s := m.waiting[0]
	m.waiting = append(m.waiting[:0:0], m.waiting[1:]...)
	m.mu.Unlock()
	busy := map[*place]bool{}
	for _, other := range m.running() {
		busy[other.adapter] = true
	}
	var err error
	if s.adapter, err = m.batch.adapter(s.spec.Adapter, busy); err != nil {
		m.fail(s.request, err)
		return
	}
	m.rows.Admit(s)
}

// echo records the log-probabilities of prompt tokens: logits of position i
// predict token i+1.
func (m *Model) echo(s *sequence, logits [][]float32) {
	if s.read == 0 {
		s.request.echo = append(s.request.echo, m.token(s.prompt[0], true))
	}
	for i, row := range logits {
		at := s.read + i + 1
		if at >= len(s.prompt) {
			return
		}
		lp, top := sample.Logprobs(row, m.vocabulary, s.prompt[at], s.logprobs())
		s.request.echo = append(s.request.echo, m.describe(sample.Choice{ID: s.prompt[at], Logprob: lp, Top: top}, s.logprobs()))
	}
}

// decode runs one token of every decoding sequence.
func (m *Model) decode(ctx context.Context) {
	sequences := append([]*sequence(nil), m.rows.Decoding()...)
	tokens := make([]int32, len(sequences))
	past, adapters := make([]int, len(sequences)), make([]*place, len(sequences))
	for i, s := range sequences {
		tokens[i], past[i], adapters[i] = s.last, s.cached, s.adapter
	}
	logits, err := m.batch.decode(ctx, tokens, past, adapters)
	if ctx.Err() != nil {
		return // the model closes: abandon tells everybody
	}
	if err != nil {
		for _, s := range sequences {
			m.fail(s.request, err)
		}
		return
	}
	for _, s := range sequences {
		s.cached++ // before any row moves
	}
	for i, s := range sequences {
		m.next(s, logits[i])
	}
}

// next samples the next token of s and frees its row when the answer ends.
func (m *Model) next(s *sequence, logits []float32) {
	choice, err := s.sampler.Sample(logits, s.logprobs())
	if err != nil {
		m.fail(s.request, sampleError(s.spec, err))
		return
	}
	if s.accept(m, choice) {
		m.release(s)
	}
}

// sampleError blames the parameters that can make good logits useless, when the
// request has one of them, and the model otherwise.
func sampleError(spec *engine.GenerateRequest, err error) error {
	if !errors.Is(err, sample.ErrBadLogits) {
		return fmt.Errorf("sample a token: %w", err)
	}
	switch p := spec.Sampling; {
	case len(p.LogitBias) > 0:
		return &engine.RequestError{Param: "logit_bias", Message: "this logit_bias leaves no token that could come next"}
	case p.RepetitionPenalty != nil && *p.RepetitionPenalty != 1:
		return &engine.RequestError{Param: "repetition_penalty", Message: "this repetition_penalty leaves no token that could come next"}
	}
	return fmt.Errorf("sample a token: %w", err)
}

// fail ends a request with an error and frees all of its rows.
func (m *Model) fail(r *request, err error) {
	r.cancelled.Store(true)
	r.out.finish(err)
	m.reap()
}

// abandon ends everything that is left when the model closes.
func (m *Model) abandon(err error) {
	m.mu.Lock()
	m.closed = true
	left := append([]*sequence(nil), m.waiting...)
	m.waiting = nil
	m.mu.Unlock()
	for _, s := range append(left, m.running()...) {
		s.out.finish(err)
	}
}
