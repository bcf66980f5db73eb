package llm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"athanor/engine"
	"athanor/engine/compute"
	"athanor/engine/family"
)

// Scorer computes the logits of whole token sequences on the graph that serves,
// one sequence at a time. It is for one goroutine.
type Scorer struct {
	batch *batch
}

// OpenScorer compiles a model as Load does, without tokenizer and loop. Of the
// options, Slots has no meaning.
func OpenScorer(ctx context.Context, rt compute.Runtime, opt Options) (*Scorer, error) {
	fam, err := family.Open(os.DirFS(opt.Dir))
	if err != nil {
		return nil, err
	}
	opt.Slots = 1
	contextLength, _ := capacity(fam.Decoder(), opt)
	program, _, err := compile(ctx, rt, fam, contextLength, opt)
	if err != nil {
		return nil, err
	}
	b, err := newBatch(rt, program, fam.Decoder(), contextLength, opt)
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	return &Scorer{b}, nil
}

// Decoder describes the model.
func (s *Scorer) Decoder() family.Decoder { return s.batch.decoder }

// Context is the most tokens of a sequence.
func (s *Scorer) Context() int { return s.batch.capacity }

// Logits runs tokens, with an adapter unless it is nil, and calls each with the
// logits [V] after every one of them, in order. The slice is valid during the
// call. An error from each ends the run.
func (s *Scorer) Logits(ctx context.Context, tokens []int32, adapter *engine.Adapter, each func(position int, logits []float32) error) error {
	b := s.batch
	if len(tokens) > b.capacity {
		return fmt.Errorf("%d tokens are more than the context of %d", len(tokens), b.capacity)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= b.decoder.Vocabulary {
			return fmt.Errorf("token %d at position %d is not one of the model's, 0 to %d", id, i, b.decoder.Vocabulary-1)
		}
	}
	at, err := b.adapter(adapter, nil)
	if err != nil {
		return err
	}
	for past := 0; past < len(tokens); past += echoRows {
		chunk := tokens[past:min(past+echoRows, len(tokens))]
		want := make([]int, len(chunk))
		for i := range want {
			want[i] = i
		}
		logits, err := b.prefill(ctx, 0, past, chunk, want, at)
		if err != nil {
			return err
		}
		for i, row := range logits {
			if err := each(past+i, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close frees the program and its memory.
func (s *Scorer) Close() error {
	s.batch.close()
	if err := s.batch.program.Close(); err != nil {
		return fmt.Errorf("close the program: %w", err)
	}
	return nil
}
