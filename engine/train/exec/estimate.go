package exec

// fitsWhole chooses between layer by layer and one program for everything.
func (e *Executor) fitsWhole() bool { return !e.cfg.Layered }

// Estimate is the memory in bytes at the peak for batches of rows x length.
func (e *Executor) Estimate(rows, length int) int64 { return 0 }
