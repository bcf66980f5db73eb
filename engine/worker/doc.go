// Package worker is the protocol between the control plane and a worker
// process, and both of its ends.
//
// A worker is a child process of the same executable. It serves one model, or
// it runs one training job.
//
// # Serving
//
// The child serves engine.Generator as HTTP/1.1 on a unix socket that only its
// owner may open:
//
//	GET  /health    200 while the process answers
//	GET  /info      engine.ModelInfo
//	POST /generate  engine.GenerateRequest -> records, one JSON object a line
//
// An answer to /generate is a row of records. Each carries one event, or an
// error that ends the row, or done, which ends it well; each is flushed by
// itself. A row that ends otherwise was cut: the worker died, and the client
// reports engine.ErrUnavailable. An error before the first event is an HTTP
// status with the same error object. Closing the connection cancels the
// request.
//
// # Life of a child
//
// The parent writes one line of JSON, a Launch, to the child's standard input
// and keeps it open; the child opens its socket, loads, and announces on file
// descriptor 3 that it is ready, or why it is not. SIGTERM drains it. End of
// input on standard input means that the parent is gone, and the child exits
// at once; the parent also asks the kernel for a kill on its death
// (engine/host), so a child that is stuck dies too.
//
// # Training
//
// A Launch with Train makes the child run that job. It opens no socket;
// descriptor 3 stays open and carries lines of JSON, each a Progress: an event,
// a sign of life every few seconds even while a long step computes, and as the
// last line the result or a typed error. A row of lines that ends otherwise was
// cut: the child died. SIGTERM cancels the job, which saves what it can.
//
// Standard error of a worker is its log.
//
// Everything that crosses is bounded in size: requests and records on the
// socket (MaxRequest, MaxRecord), launches and lines of progress (1 MiB). The
// package starts no process; engine/host does.
package worker
