package host

import (
	"fmt"
	"time"
)

// Class says how a worker ended.
type Class string

// The classes.
const (
	ClassStopped Class = "stopped" // it was asked to
	ClassCrash   Class = "crash"   // it died
	ClassHung    Class = "hung"    // it did not answer and was killed
	ClassMemory  Class = "memory"  // it took too much memory and was killed
	ClassLoad    Class = "load"    // it said why it cannot load its model
	ClassStart   Class = "start"   // its process could not be started, or did not get ready in time
	ClassGarbage Class = "garbage" // it wrote what is not the protocol and was killed
	ClassNoRoom  Class = "no_room" // there was no memory to promise it
)

// Policy decides when a worker that failed is started again. The zero value
// has sensible times.
type Policy struct {
	Base   time.Duration // pause that doubles with each failure in a row, 0 means 500 ms
	Max    time.Duration // longest pause, 0 means 1 minute
	Stable time.Duration // a worker that lived this long has a clean record, 0 means 1 minute
	GiveUp int           // failures in a row after which only a request starts it again, 0 means 8
}

// Decision is what Policy says about a failure.
type Decision struct {
	Until   time.Time // no start before this
	Restart bool      // a resident worker is started at Until without waiting for a request
	Reason  string
}

// Decide answers for the given number of failures in a row, or of starts in a row
// without room, 1 or more, the last of class. The first death of a worker that was ready is forgiven at
// once. A worker that cannot load its model is not started again by itself:
// the same files give the same answer.
func (p Policy) Decide(failures int, class Class, now time.Time) Decision {
	p = p.withDefaults()
	switch class {
	case ClassStopped:
		return Decision{Until: now, Reason: "not a failure"}
	case ClassNoRoom:
		d := p.pause(failures)
		return Decision{Until: now.Add(d), Restart: true, Reason: fmt.Sprintf("not a failure: a request may try at once, and a resident worker is tried in %v", d)}
	case ClassLoad:
		d := p.pause(failures)
		return Decision{Until: now.Add(d), Reason: fmt.Sprintf("the model cannot be loaded; a request may try again in %v", d)}
	}
	if failures <= 1 && class != ClassStart {
		return Decision{Until: now, Restart: true, Reason: "first failure, start again at once"}
	}
	d := p.pause(failures - 1)
	if failures > p.GiveUp {
		return Decision{Until: now.Add(d), Reason: fmt.Sprintf("%d failures in a row; a request may try again in %v", failures, d)}
	}
	return Decision{Until: now.Add(d), Restart: true, Reason: fmt.Sprintf("%d failures in a row, start again in %v", failures, d)}
}

// pause is Base·2^(n-1), at most Max, for n >= 1.
func (p Policy) pause(n int) time.Duration {
	d := p.Base
	for ; n > 1 && d < p.Max; n-- {
		d *= 2
	}
	return min(d, p.Max)
}

func (p Policy) withDefaults() Policy {
	if p.Base <= 0 {
		p.Base = 500 * time.Millisecond
	}
	if p.Max <= 0 {
		p.Max = time.Minute
	}
	if p.Stable <= 0 {
		p.Stable = time.Minute
	}
	if p.GiveUp <= 0 {
		p.GiveUp = 8
	}
	return p
}
