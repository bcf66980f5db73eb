// Package jobs runs durable work: what was promised in a transaction is done,
// whatever happens to the process meanwhile. It knows no concrete job; slices
// register a [Kind] and call [Add].
//
//	Add (in the transaction of whoever promises the work)
//	   |
//	queued -- claimed when due, a worker is free --> running
//	   ^                                              |-- nil ----------------> deleted
//	   |-- failed, and worth another try -------------|-- cancelled ----------> deleted
//	   |-- no room yet, Later: put back, not counted -|-- failed for good ----> GiveUp, deleted
//	   |-- shutdown: put back, not counted -----------|
//	   |-- the process died: counted by Start --------|
//
// # Words
//
//   - A job is a record of the queue; its subject is the record it is about.
//   - A kind is a sort of job with the function that does it.
//   - A failure is a run that returned an error, a crash one that the process did
//     not survive. They are counted apart, since a crash need not be the job's fault.
//
// # Invariants
//
//   - A job runs at least once, and at most in one goroutine at a time: only the
//     process that has the database open runs jobs, so no lease is needed. A kind
//     must therefore bear to be run again after any of its steps.
//   - A job's context is its own: it ends when the job is cancelled or the process
//     shuts down, never with a request.
//   - A job is deleted in the same transaction that tells its subject that it was
//     given up.
package jobs
