package sched

// State is what the planner sees.
type State struct {
	Waiting    int  // requests that hold no row yet
	Free       int  // rows that nobody owns
	Decoding   int  // sequences that decode
	Prefilling bool // a prompt is being read
	// Remaining is the number of tokens of that prompt, or of the first
	// waiting one, still to be read.
	Remaining int
	Chunk     int // most tokens of a prompt in one step
	// LastPrefill says that the previous step read a prompt.
	LastPrefill bool
}

// Step is what to do next; the zero Step means wait for work.
type Step struct {
	Admit   bool // give the next row to the first waiting request
	Prefill int  // tokens of the prompt to read, 0 for none
	Decode  bool // one token for every decoding sequence
}

// Idle reports that there is nothing to do.
func (s Step) Idle() bool { return !s.Admit && s.Prefill == 0 && !s.Decode }

// Plan chooses the next step: prompts first, for they fill the batch, but never
// two chunks in a row while answers are waiting for their next token.
func Plan(s State) Step {
	ready := s.Prefilling || (s.Waiting > 0 && s.Free > 0)
	if ready && !(s.LastPrefill && s.Decoding > 0) {
		return Step{Admit: !s.Prefilling, Prefill: min(s.Remaining, s.Chunk)}
	}
	return Step{Decode: s.Decoding > 0}
}
