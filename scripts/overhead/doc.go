// Command overhead measures what the control plane adds to a streamed chat
// request. A server with a mock in place of its model and its clients run as
// two child processes of this one; every stream is timed at both ends.
//
//	first   time to the first event at the client, less the mock's own
//	stream  time to the end of the answer, less the mock's own
//
// A bare server, which plays the same mock and writes as many bytes without any
// control plane, is measured in turns with it: it shows what the machine and
// what else runs on it cost at that time.
//
// The mock's own time is what passes in it outside of handing over events, so
// that a timer that fires late is not charged to the control plane, but a slow
// hand-over is. The clients' work and the machine's scheduling are charged.
//
//	go run ./scripts/overhead [-streams 200] [-rounds 20] [-tokens 20] [-delay 20ms] [-repeat 3] [-profile FILE]
//
// With -delay 0 the mock never waits: the clients saturate the machine, and the
// figures are queueing rather than overhead; requests per second count then.
package main
