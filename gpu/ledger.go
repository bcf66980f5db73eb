package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrNoRoom is returned when a device has less memory left than was asked for;
// the error is a *NoRoomError with the figures.
var ErrNoRoom = errors.New("not enough memory on the device")

// ErrNoCores is returned when all cores of a device that may be promised are
// taken; the error is a *NoCoresError with the figures.
var ErrNoCores = errors.New("the cores of the device are taken")

// ErrNoDevice is returned for a device the Ledger does not know.
var ErrNoDevice = errors.New("no such device")

// NoRoomError says by how much a reservation did not fit.
type NoRoomError struct {
	Device   string
	Wanted   int64 // bytes asked for
	Reserved int64 // bytes promised to others
	Capacity int64 // bytes that may be promised
}

// Free is what could have been had.
func (e *NoRoomError) Free() int64 { return max(0, e.Capacity-e.Reserved) }

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("%v: %s has %s free of %s, %s are needed",
		ErrNoRoom, e.Device, Size(e.Free()), Size(e.Capacity), Size(e.Wanted))
}

func (e *NoRoomError) Unwrap() error { return ErrNoRoom }

// NoCoresError says by how many cores a reservation did not fit.
type NoCoresError struct {
	Device   string
	Wanted   int // cores asked for
	Reserved int // cores promised to others
	Capacity int // cores that may be promised
}

func (e *NoCoresError) Error() string {
	return fmt.Sprintf("%v: %s has %d free of %d, %d are needed", ErrNoCores, e.Device, max(0, e.Capacity-e.Reserved), e.Capacity, e.Wanted)
}

func (e *NoCoresError) Unwrap() error { return ErrNoCores }

// Ledger holds who has been promised how much memory and which share of the
// cores. Promises on a device never add up to more than its capacity. Safe for
// concurrent use.
type Ledger struct {
	mu       sync.Mutex        // guards the fields below
	devices  map[string]Device // with the capacity in place of the facts
	reserved map[string]Entry  // sums by device
	entries  map[*Reservation]Entry
}

// Entry is one promise. Cores are for work that keeps them busy for hours, such
// as training; work in bursts, such as serving, shares all cores and promises
// none.
type Entry struct {
	Owner  string `json:"owner"`
	Device string `json:"device"`
	Bytes  int64  `json:"bytes"`
	Cores  int    `json:"cores,omitempty"`
}

// NewLedger starts with the whole memory and all cores of the devices to give
// away.
func NewLedger(devices ...Device) *Ledger {
	l := &Ledger{devices: map[string]Device{}, reserved: map[string]Entry{}, entries: map[*Reservation]Entry{}}
	for _, d := range devices {
		l.devices[d.ID] = d
	}
	return l
}

// SetCapacity changes the bytes that may be promised on a device, for example
// to leave room for other programs. Promises already given stay.
func (l *Ledger) SetCapacity(device string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.devices[device]
	d.ID, d.MemoryBytes = device, max(0, bytes)
	l.devices[device] = d
}

// SetCores changes how many cores may be promised on a device the Ledger knows;
// more than it has lets owners share them.
func (l *Ledger) SetCores(device string, cores int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d, ok := l.devices[device]; ok {
		d.Cores = max(0, cores)
		l.devices[device] = d
	}
}

// Reserve promises e. An owner may hold several reservations. The error is
// *NoCoresError, *NoRoomError, or wraps ErrNoDevice.
func (l *Ledger) Reserve(e Entry) (*Reservation, error) {
	if e.Bytes < 0 || e.Cores < 0 {
		return nil, fmt.Errorf("reserve %d bytes and %d cores: negative", e.Bytes, e.Cores)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.devices[e.Device]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoDevice, e.Device)
	}
	sum := l.reserved[e.Device]
	// Differences: the sum of two sizes from outside could overflow.
	if e.Cores > 0 && e.Cores > d.Cores-sum.Cores {
		return nil, &NoCoresError{Device: e.Device, Wanted: e.Cores, Reserved: sum.Cores, Capacity: d.Cores}
	}
	if e.Bytes > d.MemoryBytes-sum.Bytes {
		return nil, &NoRoomError{Device: e.Device, Wanted: e.Bytes, Reserved: sum.Bytes, Capacity: d.MemoryBytes}
	}
	r := &Reservation{ledger: l}
	l.entries[r] = e
	l.add(e.Device, e.Bytes, e.Cores)
	return r, nil
}

// add changes the sums of a device. The caller holds mu.
func (l *Ledger) add(device string, bytes int64, cores int) {
	sum := l.reserved[device]
	sum.Bytes += bytes
	sum.Cores += cores
	l.reserved[device] = sum
}

// Reserved is the sum of the bytes promised on a device.
func (l *Ledger) Reserved(device string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserved[device].Bytes
}

// States describes all devices by ID, for Plan: used is what was measured, ours
// the bytes of that which our own workers hold, by device.
func (l *Ledger) States(used []Usage, ours map[string]int64) []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []State
	for id, d := range l.devices {
		s := State{Device: d, Used: UnknownBytes, Ours: ours[id], Reserved: l.reserved[id].Bytes, Cores: l.reserved[id].Cores}
		for _, u := range used {
			if u.Device == id {
				s.Used = u.UsedBytes
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
	return out
}

// Snapshot lists all promises by device and owner.
func (l *Ledger) Snapshot() []Entry {
	l.mu.Lock()
	out := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		out = append(out, e)
	}
	l.mu.Unlock()
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Bytes, b.Bytes))
	})
	return out
}

// Reservation is a promise; Release gives it back.
type Reservation struct{ ledger *Ledger }

// Release ends the promise. Later calls do nothing, and so does a call on nil.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[r]; ok {
		delete(l.entries, r)
		l.add(e.Device, -e.Bytes, -e.Cores)
	}
}

// Shrink gives back what is promised beyond bytes; it never makes a promise
// larger. After Release, and on nil, it does nothing.
func (r *Reservation) Shrink(bytes int64) {
	if r == nil {
		return
	}
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[r]; ok && bytes >= 0 && bytes < e.Bytes {
		l.add(e.Device, bytes-e.Bytes, 0)
		e.Bytes = bytes
		l.entries[r] = e
	}
}

// Bytes is what is promised now, 0 after Release and on nil.
func (r *Reservation) Bytes() int64 {
	if r == nil {
		return 0
	}
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	return r.ledger.entries[r].Bytes
}

// Size writes bytes for people, in binary units.
func Size(bytes int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	v, unit := float64(bytes)/(1<<10), 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %s", v, units[unit])
}
