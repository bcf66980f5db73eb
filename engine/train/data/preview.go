package data

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// MaxPreview bounds the lines of a preview.
const MaxPreview = 1000

// PreviewRow is a sequence as training will see it, in the form of the API.
type PreviewRow struct {
	InputIDs     []int32  `json:"input_ids"`
	Tokens       []string `json:"tokens"`        // text of each
	Labels       []int32  `json:"labels"`        // the token, or -100 where it carries no loss
	TrainedSpans [][2]int `json:"trained_spans"` // [from, to) in tokens
	NumTokens    int      `json:"num_tokens"`
	NumTrained   int      `json:"num_trained_tokens"`
	Truncated    bool     `json:"truncated"`
	// Answer is chosen or rejected in a preference pair, else empty.
	Answer string `json:"answer,omitempty"`
}

// Previewed is what Preview finds.
type Previewed struct {
	Format       string // of the dataset
	MaxSeqLength int    // tokens, the model's context where the options give none
	Rows         []PreviewRow
}

// errEnough ends a scan whose rows are all there.
var errEnough = errors.New("enough rows")

// Preview encodes the first n lines of a dataset, at most MaxPreview, for the model
// whose folder is given; only its text files are read. Errors are those of NewEncoder
// and Scan.
func Preview(ctx context.Context, model fs.FS, o EncodeOptions, src Source, n int) (*Previewed, error) {
	if n < 1 || n > MaxPreview {
		return nil, fmt.Errorf("a preview has between 1 and %d lines, not %d", MaxPreview, n)
	}
	e, err := NewEncoder(model, o)
	if err != nil {
		return nil, err
	}
	if e.o.MaxSeqLength == 0 {
		e.o.MaxSeqLength = e.m.context
	}
	out := &Previewed{MaxSeqLength: e.o.MaxSeqLength}
	lines := 0
	err = Scan(ctx, e, src, "training", nil, func(_ int64, enc *Encoded) error {
		out.Format = enc.Format
		out.Rows = append(out.Rows, e.Rows(enc)...)
		if lines++; lines == n {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return out, nil
}

// Rows shows the samples of a line.
func (e *Encoder) Rows(enc *Encoded) []PreviewRow {
	rows := make([]PreviewRow, 0, len(enc.Samples))
	for i := range enc.Samples {
		s := &enc.Samples[i]
		row := PreviewRow{InputIDs: s.Tokens, Labels: s.labels(), TrainedSpans: [][2]int{}, NumTokens: len(s.Tokens), NumTrained: s.trained()}
		row.Truncated = len(s.Tokens) < enc.Lengths[i]
		if len(enc.Samples) == 2 {
			row.Answer = [2]string{"chosen", "rejected"}[i]
		}
		for k, id := range s.Tokens {
			row.Tokens = append(row.Tokens, string(e.m.tokenizer.Bytes(id)))
			if s.Weights[k] == 0 {
				continue
			}
			if n := len(row.TrainedSpans); n > 0 && row.TrainedSpans[n-1][1] == k {
				row.TrainedSpans[n-1][1] = k + 1
			} else {
				row.TrainedSpans = append(row.TrainedSpans, [2]int{k, k + 1})
			}
		}
		rows = append(rows, row)
	}
	return rows
}
