package data

// Batch is one forward pass: B rows of S positions, stored row by row. Position
// i of a row predicts the next token of its sample.
type Batch struct {
	Rows, Length int // B, S

	Tokens    []int32   // [B*S]; padding is 0
	Targets   []int32   // [B*S], the token that follows; 0 where Weights is 0
	Weights   []float32 // [B*S], loss weight of the target; 0 = no loss
	Positions []int32   // [B*S], within the sample, from 0
	Segments  []int32   // [B*S], number of the sample within its row, from 0; -1 for padding

	// Noise is the counter that dropout masks are drawn from together with the
	// seed; it is different for every batch of a job. 0 is no dropout.
	Noise uint64
}
