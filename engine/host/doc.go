// Package host owns worker processes: it starts them, lends them out, watches
// them, restarts them and makes sure that none outlives its owner.
//
// There is at most one worker per key. Its life:
//
//	          Acquire              loaded              idle, Evict, Close
//	absent ------------> loading ---------> ready ------------------------> draining
//	   ^                    |                 |                                |
//	   |                    | cannot load     | died, hung, too much memory    |
//	   |                    v                 v                                |
//	   |     Acquire     failed(until) <------+                                |
//	   |   after until      |                                                  |
//	   |                 loading                                               |
//	   +-----------------------------------------------------------------------+
//
// One goroutine owns each live worker from loading to its end; loading happens
// outside the lock, once for all who wait, and a slow load delays nobody else.
// When and whether a worker that failed is started again is decided by Policy,
// a pure function. Memory is reserved in a gpu.Ledger before a worker starts;
// workers without requests make room, the longest idle first.
//
// # Training
//
// Train runs a job in a child of its own kind: started by the same thread, with
// the same watch over its memory and the same log, but without a socket. What it
// may use is promised in the Ledger before it starts: memory (what is free, less a
// margin for the rest of the machine, given back as far as its plan does not need
// it) and cores, so that two jobs do not train on the same ones unless the
// operator wants it. Serving shares all cores and goes first: a job runs at nice
// 10. Idle workers make room for a job; what is in use never does. A job that
// finds no room is refused with engine.BusyError and holds nothing, so nobody
// waits for somebody who waits.
//
// A job that gives no sign of life is killed, and so is one that writes what is
// not the protocol. Whatever its end, Train returns when the process is gone and
// its memory is given back; a job that is stopped gets SIGTERM first and time to
// save.
//
// # What holds a worker back
//
// A worker that does not answer GET /health is killed, and so is one whose own
// memory (anonymous, shared and swapped; not the file pages of mapped weights,
// which the kernel takes back when it needs them) is above its limit. The limit
// is kept by the kernel where a control group of version 2 was delegated to
// this process; otherwise it is checked four times a second, and a worker can
// exceed it for that long. Workers also volunteer as the first victims when the
// whole machine runs out of memory.
//
// # Nothing is left behind
//
// A worker dies with this process, whatever kills it: the kernel is asked to
// send SIGKILL on the death of the thread that started it (which is therefore
// one thread, kept for that purpose), and a worker ends by itself when its
// standard input does. Every worker is waited for, and its socket removed.
package host
