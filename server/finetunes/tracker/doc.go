// Package tracker reports the metrics of a job to an experiment tracker that speaks
// the W&B protocol, usually one that its owner hosts: a GraphQL call makes the run, a
// file stream carries history lines, the summary and the end.
//
// # Words
//
//   - A run is what the tracker shows for one job. Its id is the job's, so a job that
//     goes on after a restart goes on in the same run.
//   - A row is the metrics of one moment; it becomes one history line, whose "_step"
//     is the number of the line and whose "trainer/global_step" is the job's step.
//
// # Invariants
//
//   - No method but Finish and Leave waits, and these wait no longer than their
//     context. Nothing here fails a job.
//   - Rows are kept in a bounded queue while the tracker is away. When it is away for
//     too long, or refuses, reporting ends with one warning.
//   - A line that was sent twice, because the answer was lost, is there once: lines
//     are sent with their place. Rows that a resumed job reports again are left out.
//   - The key goes to the tracker only, not into warnings or logs.
package tracker
