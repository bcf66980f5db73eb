package parquet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Bounds of a page.
const (
	MaxPage   = 64 << 20 // bytes, compressed or not
	maxHeader = 64 << 10 // statistics included
)

// Kinds of pages and encodings of the specification.
const (
	dataPage       = 0
	indexPage      = 1
	dictionaryPage = 2
	dataPageV2     = 3

	encodingPlain      = 0
	encodingPlainDict  = 2
	encodingRLE        = 3
	encodingDelta      = 5
	encodingDictionary = 8
)

// Codecs of the specification.
const (
	uncompressed = 0
	snappyCodec  = 1
	gzipCodec    = 2
	zstdCodec    = 6
)

var codecs = [...]string{"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"}

func checkCodec(codec int64) error {
	switch codec {
	case uncompressed, snappyCodec, gzipCodec, zstdCodec:
		return nil
	}
	if codec >= 0 && codec < int64(len(codecs)) {
		return wrong("the compression %s is not supported: write the file with snappy, gzip, zstd or none", codecs[codec])
	}
	return wrong("the compression %d is not known", codec)
}

var encodings = map[int64]string{0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 4: "BIT_PACKED", 5: "DELTA_BINARY_PACKED",
	6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 8: "RLE_DICTIONARY", 9: "BYTE_STREAM_SPLIT"}

// pageHeader stands before a page.
type pageHeader struct {
	kind         int64
	size, packed int64 // bytes, packed as in the file
	sum          *uint32
	values       int64
	encoding     int64
	repetition   int64 // encoding of version 1, bytes of version 2
	definition   int64
	compressed   bool // version 2
}

// parsePageHeader returns the header at the beginning of b and its size.
func parsePageHeader(b []byte) (h pageHeader, n int, err error) {
	t := &thrift{b: b}
	h.kind, h.compressed = -1, true
	t.fields(func(id int16, kind byte) {
		switch id {
		case 1:
			h.kind = t.wantInt(kind)
		case 2:
			h.size = t.wantInt(kind)
		case 3:
			h.packed = t.wantInt(kind)
		case 4:
			sum := uint32(t.wantInt(kind))
			h.sum = &sum
		case 5:
			h.version1(t, kind)
		case 7:
			t.wantStruct(kind, func(id int16, kind byte) {
				switch id {
				case 1:
					h.values = t.wantInt(kind)
				case 2:
					h.encoding = t.wantInt(kind)
				default:
					t.skip(kind)
				}
			})
		case 8:
			h.version2(t, kind)
		default:
			t.skip(kind)
		}
	})
	if t.err != nil {
		return h, 0, t.err
	}
	if h.size < 0 || h.size > MaxPage || h.packed < 0 || h.packed > MaxPage {
		return h, 0, fmt.Errorf("a page has %d bytes, %d compressed; at most %d are allowed", h.size, h.packed, MaxPage)
	}
	if h.values < 0 {
		return h, 0, errPageBad
	}
	return h, t.at, nil
}

func (h *pageHeader) version1(t *thrift, kind byte) {
	t.wantStruct(kind, func(id int16, kind byte) {
		switch id {
		case 1:
			h.values = t.wantInt(kind)
		case 2:
			h.encoding = t.wantInt(kind)
		case 3:
			h.definition = t.wantInt(kind)
		case 4:
			h.repetition = t.wantInt(kind)
		default:
			t.skip(kind)
		}
	})
}

func (h *pageHeader) version2(t *thrift, kind byte) {
	t.wantStruct(kind, func(id int16, kind byte) {
		switch id {
		case 1:
			h.values = t.wantInt(kind)
		case 4:
			h.encoding = t.wantInt(kind)
		case 5:
			h.definition = t.wantInt(kind)
		case 6:
			h.repetition = t.wantInt(kind)
		case 7:
			if kind != typeTrue && kind != typeFalse {
				t.fail(errors.New("the metadata has a field of the wrong type"))
			}
			h.compressed = kind == typeTrue
		default:
			t.skip(kind)
		}
	})
}

// pages reads the pages of one column chunk, one at a time, into memory that it
// uses again.
type pages struct {
	r      *bufio.Reader // the bytes of the chunk
	left   int64         // of them
	codec  int64
	packed []byte
	zstd   *zstd.Decoder
}

// next reads a page and returns its header and its content, without compression,
// in into or newly allocated memory.
func (p *pages) next(into []byte) (h pageHeader, data []byte, err error) {
	head, err := p.r.Peek(int(min(maxHeader, p.left)))
	if err != nil && len(head) == 0 {
		return h, nil, readError(err)
	}
	h, n, err := parsePageHeader(head)
	if err != nil {
		return h, nil, err
	}
	if int64(n)+h.packed > p.left {
		return h, nil, errors.New("a page is longer than its column")
	}
	p.left -= int64(n) + h.packed
	if _, err := p.r.Discard(n); err != nil {
		return h, nil, readError(err)
	}
	if p.packed, err = readSome(p.r, p.packed[:0], int(h.packed)); err != nil {
		return h, nil, readError(err)
	}
	if h.sum != nil && crc32.ChecksumIEEE(p.packed) != *h.sum {
		return h, nil, errors.New("a page does not have its checksum: the file is damaged")
	}
	plainBytes := int64(0)
	if h.kind == dataPageV2 {
		// The levels of version 2 lie before the rest, without compression.
		plainBytes = h.definition + h.repetition
		if h.definition < 0 || h.repetition < 0 || plainBytes > min(h.packed, h.size) {
			return h, nil, errPageBad
		}
	}
	if p.codec == uncompressed || h.kind == dataPageV2 && !h.compressed {
		if h.size != h.packed {
			return h, nil, errPageBad
		}
		return h, append(into[:0], p.packed...), nil
	}
	data, err = p.unpack(append(into[:0], p.packed[:plainBytes]...), p.packed[plainBytes:], int(h.size))
	return h, data, err
}

// readSome appends n bytes to b, growing with what has come so that a length alone
// takes no memory.
func readSome(r io.Reader, b []byte, n int) ([]byte, error) {
	const step = 1 << 20
	for n > 0 {
		k := min(step, n)
		b = append(b, make([]byte, k)...)
		if _, err := io.ReadFull(r, b[len(b)-k:]); err != nil {
			return b, err
		}
		n -= k
	}
	return b, nil
}

// readError makes an early end one of the file.
func readError(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("a column ends within a page")
	}
	return err
}

// unpack appends the plain form of src to dst, which must then have size bytes.
func (p *pages) unpack(dst, src []byte, size int) ([]byte, error) {
	want := size - len(dst)
	switch p.codec {
	case snappyCodec:
		if n, err := snappy.DecodedLen(src); err != nil || n != want {
			return nil, errPageBad
		}
		if want > len(src)*64 { // an element of two or three bytes makes 64
			return nil, errPageBad
		}
		out, err := snappy.Decode(nil, src)
		if err != nil {
			return nil, fmt.Errorf("a page cannot be decompressed: %w", err)
		}
		return append(dst, out...), nil
	case gzipCodec:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, fmt.Errorf("a page cannot be decompressed: %w", err)
		}
		return exactly(z, dst, want)
	}
	if p.zstd == nil {
		var err error
		p.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxPage), zstd.WithDecoderMaxWindow(MaxPage))
		if err != nil {
			return nil, err
		}
	}
	if err := p.zstd.Reset(bytes.NewReader(src)); err != nil {
		return nil, fmt.Errorf("a page cannot be decompressed: %w", err)
	}
	return exactly(p.zstd, dst, want)
}

// exactly reads want bytes, and makes sure that there are no more.
func exactly(r io.Reader, dst []byte, want int) ([]byte, error) {
	out, err := readSome(r, dst, want)
	if err != nil {
		return nil, fmt.Errorf("a page cannot be decompressed: %w", err)
	}
	var more [1]byte
	if n, err := r.Read(more[:]); n != 0 || err != nil && err != io.EOF {
		return nil, errPageBad
	}
	return out, nil
}

// levelBytes cuts the levels off a page of version 1, which begin with their length.
func levelBytes(b []byte) (levels, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errPageShort
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, errPageShort
	}
	return b[4 : 4+n], b[4+n:], nil
}
