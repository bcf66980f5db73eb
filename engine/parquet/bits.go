package parquet

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

var (
	errPageShort = errors.New("a page has fewer values than it says")
	errPageBad   = errors.New("a page holds values that cannot be")
)

// hybrid decodes runs of equal values and groups of bit-packed ones, which levels
// and dictionary indices are written as.
type hybrid struct {
	b     []byte
	width int // bits of a value, 0..32
	run   uint64
	value uint32
	group []byte // of bit-packed values, nil within a run
	bit   int    // place of the next one in group
}

func (h *hybrid) next() (uint32, error) {
	if h.run == 0 {
		if err := h.open(); err != nil {
			return 0, err
		}
	}
	h.run--
	if h.group == nil {
		return h.value, nil
	}
	v := unpack(h.group, h.bit, h.width)
	h.bit += h.width
	return uint32(v), nil
}

// open reads the head of a run or of groups.
func (h *hybrid) open() error {
	head, n := binary.Uvarint(h.b)
	if n <= 0 || head>>1 == 0 {
		return errPageShort
	}
	h.b = h.b[n:]
	if h.run = head >> 1; head&1 == 0 {
		size := (h.width + 7) / 8
		if size > len(h.b) {
			return errPageShort
		}
		h.value, h.group = 0, nil
		for i := size - 1; i >= 0; i-- {
			h.value = h.value<<8 | uint32(h.b[i])
		}
		h.b = h.b[size:]
		return nil
	}
	if h.run > 1<<32 {
		return errPageBad
	}
	// Groups of eight values; the last may be cut short at the end of the page.
	size := min(h.run*uint64(h.width), uint64(len(h.b)))
	h.group, h.bit, h.b = h.b[:size:size], 0, h.b[size:]
	if h.run *= 8; h.width > 0 {
		h.run = min(h.run, size*8/uint64(h.width))
	}
	if h.run == 0 {
		return errPageShort
	}
	return nil
}

// unpack reads width bits, at most 64, from bit on; what lies behind b reads as 0.
func unpack(b []byte, bit, width int) uint64 {
	if width == 0 {
		return 0
	}
	at, shift := bit/8, bit%8
	var v uint64
	if at+8 <= len(b) {
		v = binary.LittleEndian.Uint64(b[at:])
	} else {
		for i := min(len(b), at+8) - 1; i >= at; i-- {
			v = v<<8 | uint64(b[i])
		}
	}
	v >>= shift
	if shift+width > 64 && at+8 < len(b) {
		v |= uint64(b[at+8]) << (64 - shift)
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

// A decoder gives the values of a page one by one.
type decoder interface {
	next() (int64, error)
}

// plain are little-endian integers.
type plain struct {
	b    []byte
	size int // 4 or 8
}

func (p *plain) next() (int64, error) {
	if len(p.b) < p.size {
		return 0, errPageShort
	}
	var v int64
	if p.size == 4 {
		v = int64(int32(binary.LittleEndian.Uint32(p.b)))
	} else {
		v = int64(binary.LittleEndian.Uint64(p.b))
	}
	p.b = p.b[p.size:]
	return v, nil
}

// indexed are numbers of values in a dictionary, which is plain.
type indexed struct {
	h    hybrid
	dict plain
}

func newIndexed(b []byte, dict []byte, size int) (*indexed, error) {
	if dict == nil {
		return nil, errors.New("a page needs a dictionary, and there is none")
	}
	if len(b) == 0 || b[0] > 32 {
		return nil, errPageBad
	}
	return &indexed{hybrid{b: b[1:], width: int(b[0])}, plain{dict, size}}, nil
}

func (d *indexed) next() (int64, error) {
	i, err := d.h.next()
	if err != nil {
		return 0, err
	}
	at := uint64(i) * uint64(d.dict.size)
	if at >= uint64(len(d.dict.b)) {
		return 0, errPageBad
	}
	entry := plain{d.dict.b[at:], d.dict.size}
	return entry.next()
}

// maxBlock bounds the values of a block of deltas; writers use 128 to 1024.
const maxBlock = 1 << 16

// delta are the binary packed differences of the specification. (Lemire and
// Boytsov 2012.)
type delta struct {
	b      []byte
	size   int // bytes of a value: arithmetic wraps as in that type
	left   uint64
	last   int64
	first  bool // last was not given out
	per    int  // values of a miniblock
	widths []byte
	minis  int
	min    int64
	mini   []byte
	bit    int
	inMini int // values left in it
}

func newDelta(b []byte, size int) (*delta, error) {
	d := &delta{b: b, size: size, first: true}
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(d.b)
		if n <= 0 {
			return nil, errPageShort
		}
		head[i], d.b = v, d.b[n:]
	}
	block, minis := head[0], head[1]
	if block == 0 || block > maxBlock || block%128 != 0 || minis == 0 || minis > block/32 || block%minis != 0 || (block/minis)%32 != 0 {
		return nil, errPageBad
	}
	d.left, d.minis, d.per = head[2], int(minis), int(block/minis)
	var err error
	d.last, err = d.zigzag()
	return d, err
}

func (d *delta) zigzag() (int64, error) {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		return 0, errPageShort
	}
	d.b = d.b[n:]
	return int64(v>>1) ^ -int64(v&1), nil
}

func (d *delta) next() (int64, error) {
	if d.left == 0 {
		return 0, errPageShort
	}
	d.left--
	if d.first {
		d.first = false
		return d.wrap(), nil
	}
	if d.inMini == 0 {
		if err := d.open(); err != nil {
			return 0, err
		}
	}
	width := int(d.widths[0])
	d.last += d.min + int64(unpack(d.mini, d.bit, width))
	d.bit += width
	if d.inMini--; d.inMini == 0 {
		d.widths = d.widths[1:]
	}
	return d.wrap(), nil
}

func (d *delta) wrap() int64 {
	if d.size == 4 {
		d.last = int64(int32(d.last))
	}
	return d.last
}

// open begins a miniblock, and a block where the last one is over.
func (d *delta) open() error {
	if len(d.widths) == 0 {
		var err error
		if d.min, err = d.zigzag(); err != nil {
			return err
		}
		if len(d.b) < d.minis {
			return errPageShort
		}
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
	}
	width := int(d.widths[0])
	if width > 64 {
		return errPageBad
	}
	// The last miniblock may be cut behind its last value.
	need := (int(min(d.left+1, uint64(d.per)))*width + 7) / 8
	if need > len(d.b) {
		return errPageShort
	}
	n := min(d.per*width/8, len(d.b))
	d.mini, d.b, d.bit, d.inMini = d.b[:n], d.b[n:], 0, d.per
	return nil
}

// bitsFor is how many bits a level up to most takes.
func bitsFor(most int) int { return bits.Len(uint(most)) }
