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

// Ledger holds who has been promised how much memory. Promises on a device
// never add up to more than its capacity. Safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex // guards the fields below
	capacity map[string]int64
	reserved map[string]int64 // sum of entries by device
	entries  map[*Reservation]Entry
}

// Entry is one promise.
type Entry struct {
	Owner  string `json:"owner"`
	Device string `json:"device"`
	Bytes  int64  `json:"bytes"`
}

// NewLedger starts with the whole memory of the devices to give away.
func NewLedger(devices ...Device) *Ledger {
	l := &Ledger{capacity: map[string]int64{}, reserved: map[string]int64{}, entries: map[*Reservation]Entry{}}
	for _, d := range devices {
		l.capacity[d.ID] = d.MemoryBytes
	}
	return l
}

// SetCapacity changes what may be promised on a device, for example to leave
// room for other programs. Promises already given stay.
func (l *Ledger) SetCapacity(device string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.capacity[device] = max(0, bytes)
}

// Reserve promises owner bytes on a device. An owner may hold several
// reservations. The error is *NoRoomError, or wraps ErrNoDevice.
func (l *Ledger) Reserve(owner, device string, bytes int64) (*Reservation, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("reserve %d bytes: negative", bytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	capacity, ok := l.capacity[device]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoDevice, device)
	}
	// A difference: the sum of two sizes from outside could overflow.
	if reserved := l.reserved[device]; bytes > capacity-reserved {
		return nil, &NoRoomError{Device: device, Wanted: bytes, Reserved: reserved, Capacity: capacity}
	}
	r := &Reservation{ledger: l}
	l.entries[r] = Entry{Owner: owner, Device: device, Bytes: bytes}
	l.reserved[device] += bytes
	return r, nil
}

// Reserved is the sum of the promises on a device.
func (l *Ledger) Reserved(device string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserved[device]
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
		l.reserved[e.Device] -= e.Bytes
	}
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
