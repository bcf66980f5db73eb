package snapshot

import (
	"encoding/binary"
	"testing"
)

// at follows the reference to slot of the table at pos, or returns the place of a
// scalar there; 0 means that the slot is absent.
func at(b []byte, pos, slot int, reference bool) int {
	vtable := pos - int(int32(binary.LittleEndian.Uint32(b[pos:])))
	if 4+2*slot >= int(binary.LittleEndian.Uint16(b[vtable:])) {
		return 0
	}
	place := int(binary.LittleEndian.Uint16(b[vtable+4+2*slot:]))
	if place == 0 {
		return 0
	}
	if place += pos; reference {
		place += int(binary.LittleEndian.Uint32(b[place:]))
	}
	return place
}

// TestFlatten decodes a buffer by the rules of the format and checks that every
// number lies where readers that verify alignment want it.
func TestFlatten(t *testing.T) {
	for length := range 9 { // shifts what comes after the string
		text := "12345678"[:length]
		b := flatten(table{scalar{1, 7}, text, nil, scalar{8, 1 << 40}, structs{{1, -2}, {3, 4}}, []table{{scalar{2, 5}}, {}}})
		root := int(binary.LittleEndian.Uint32(b))
		if p := at(b, root, 0, false); b[p] != 7 {
			t.Errorf("slot 0 is %d", b[p])
		}
		p := at(b, root, 1, true)
		if n := int(binary.LittleEndian.Uint32(b[p:])); p%4 != 0 || string(b[p+4:p+4+n]) != text || b[p+4+n] != 0 {
			t.Errorf("the string at %d is %q", p, b[p+4:p+4+n])
		}
		if at(b, root, 2, false) != 0 || at(b, root, 6, false) != 0 {
			t.Error("an absent slot is there")
		}
		if p := at(b, root, 3, false); p%8 != 0 || binary.LittleEndian.Uint64(b[p:]) != 1<<40 {
			t.Errorf("the number at %d is %d", p, binary.LittleEndian.Uint64(b[p:]))
		}
		p = at(b, root, 4, true)
		if second := int64(binary.LittleEndian.Uint64(b[p+12:])); p%8 != 4 || binary.LittleEndian.Uint32(b[p:]) != 2 || second != -2 {
			t.Errorf("the structs at %d: the second number is %d", p, second)
		}
		p = at(b, root, 5, true)
		first := p + 4 + int(binary.LittleEndian.Uint32(b[p+4:]))
		if q := at(b, first, 0, false); binary.LittleEndian.Uint32(b[p:]) != 2 || binary.LittleEndian.Uint16(b[q:]) != 5 {
			t.Errorf("the first table has %d", binary.LittleEndian.Uint16(b[q:]))
		}
		b = flatten(table{text, table{scalar{8, 6}}})
		inner := at(b, int(binary.LittleEndian.Uint32(b)), 1, true)
		if p := at(b, inner, 0, false); p%8 != 0 || b[p] != 6 {
			t.Errorf("the number at %d of a table in a table is %d", p, b[p])
		}
	}
}
