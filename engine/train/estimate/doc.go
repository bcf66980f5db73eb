// Package estimate says how long a training job will take on this machine, before
// it is started.
//
// Speed measures how fast the machine multiplies matrices. Job.Seconds counts the
// operations that the job makes and divides. What a count of products does not see,
// the elementwise operators and the calls, is in constants whose origin stands
// beside them.
//
// An estimate is for people: it leaves out loading, tokenizing and writing the
// result, and knows nothing of what else the machine will do meanwhile.
package estimate
