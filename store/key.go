package store

import (
	"encoding/binary"
	"strings"
	"time"
)

// separator joins the parts of a key; ids and string parts never hold it.
const separator = "\x00"

// Key joins parts into an index key, so that keys sort by the first part, then the
// second, and so on. Key(p, "") is the prefix of all keys whose first part is p.
// A part that comes from outside must not hold a zero byte (see [TimeKey] for one
// that may, as the last part).
func Key(parts ...string) []byte { return []byte(strings.Join(parts, separator)) }

// TimeKey renders t as eight bytes that sort as time does, to the nanosecond,
// between the years 1678 and 2262. As it may hold zero bytes it must come last.
func TimeKey(t time.Time) string {
	var b [8]byte
	// Flipping the sign bit makes negative numbers sort before positive ones.
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixNano())^(1<<63))
	return string(b[:])
}
