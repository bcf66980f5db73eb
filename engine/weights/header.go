package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"athanor/engine/tensor"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a safetensors header.
const (
	maxHeader  = 100_000_000 // bytes, the limit of the format itself
	maxTensors = 1 << 20
	maxRank    = 16
)

// record is one tensor of a header.
type record struct {
	name       string
	storage    string // the file's name of the element type
	shape      []int64
	begin, end int64 // bytes, from the end of the header
}

// reason is an error about one place in a header; the reader of the file adds
// the file's name.
type reason struct {
	tensor string
	offset int64 // in the file
	text   string
	err    error
}

func (r *reason) Error() string {
	return (&Error{File: "header", Tensor: r.tensor, Offset: r.offset, Reason: r.text, Err: r.err}).Error()
}

func (r *reason) Unwrap() error { return r.err }

// readHeader reads and checks the header of a safetensors file of the given
// size. It returns the tensors in the order of their offsets and the position
// of the first data byte.
func readHeader(r io.ReaderAt, size int64) (records []record, data int64, err error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, 0, &reason{offset: size, text: "file ends within the header length"}
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, 0, &reason{text: "read the header length", err: err}
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeader {
		return nil, 0, &reason{text: fmt.Sprintf("header of %d bytes is over the limit of %d", length, maxHeader)}
	}
	if int64(length) > size-8 {
		return nil, 0, &reason{text: fmt.Sprintf("header of %d bytes does not fit a file of %d", length, size)}
	}
	header := make([]byte, length)
	if _, err := r.ReadAt(header, 8); err != nil {
		return nil, 0, &reason{offset: 8, text: "read the header", err: err}
	}
	data = 8 + int64(length)
	if records, err = parseHeader(header); err != nil {
		return nil, 0, err
	}
	if err := checkLayout(records, data, size-data); err != nil {
		return nil, 0, err
	}
	return records, data, nil
}

// parseHeader reads the JSON of a header. Names that occur twice are refused.
func parseHeader(header []byte) ([]record, error) {
	p := headerParser{jsontext.NewDecoder(bytes.NewReader(header))}
	var records []record
	err := p.object("the header", func(name string) error {
		if name == "__metadata__" {
			return p.metadata()
		}
		if len(records) == maxTensors {
			return p.fail(name, fmt.Sprintf("more than %d tensors", maxTensors), nil)
		}
		rec, err := p.record(name)
		records = append(records, rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, p.fail("", "text after the end of the header's JSON", nil)
	}
	return records, nil
}

type headerParser struct{ dec *jsontext.Decoder }

func (p headerParser) fail(name, text string, err error) error {
	return &reason{tensor: name, offset: 8 + p.dec.InputOffset(), text: text, err: err}
}

// object calls member after each name of the object that comes next.
func (p headerParser) object(what string, member func(name string) error) error {
	tok, err := p.dec.ReadToken()
	if err != nil {
		return p.fail("", what+" is not JSON", err)
	}
	if tok.Kind() != '{' {
		return p.fail("", what+" is not a JSON object", nil)
	}
	for {
		tok, err := p.dec.ReadToken()
		if err != nil {
			return p.fail("", what+" is not JSON", err)
		}
		if tok.Kind() == '}' {
			return nil
		}
		if err := member(tok.String()); err != nil {
			return err
		}
	}
}

// metadata skips the free-form map, which holds only strings.
func (p headerParser) metadata() error {
	return p.object("__metadata__", func(string) error {
		tok, err := p.dec.ReadToken()
		if err != nil {
			return p.fail("", "__metadata__ is not JSON", err)
		}
		if tok.Kind() != '"' {
			return p.fail("", "a value of __metadata__ is not a string", nil)
		}
		return nil
	})
}

func (p headerParser) record(name string) (record, error) {
	rec := record{name: name, begin: -1}
	seen := 0
	err := p.object(fmt.Sprintf("tensor %q", name), func(key string) error {
		switch key {
		case "dtype":
			seen++
			tok, err := p.dec.ReadToken()
			if err != nil || tok.Kind() != '"' {
				return p.fail(name, "dtype is not a string", err)
			}
			rec.storage = tok.String()
			if _, known := storages[rec.storage]; !known {
				return p.fail(name, fmt.Sprintf("unknown dtype %q", rec.storage), nil)
			}
		case "shape":
			seen++
			shape, err := p.integers(name, "shape", maxRank)
			if err != nil {
				return err
			}
			rec.shape = shape
		case "data_offsets":
			seen++
			offsets, err := p.integers(name, "data_offsets", 2)
			if err != nil {
				return err
			}
			if len(offsets) != 2 {
				return p.fail(name, "data_offsets has not two numbers", nil)
			}
			rec.begin, rec.end = offsets[0], offsets[1]
		default:
			if err := p.dec.SkipValue(); err != nil {
				return p.fail(name, "not JSON", err)
			}
		}
		return nil
	})
	if err == nil && seen != 3 {
		err = p.fail(name, "dtype, shape and data_offsets are not all there", nil)
	}
	return rec, err
}

// integers reads an array of at most limit whole numbers from 0 to 2^63-1.
func (p headerParser) integers(name, key string, limit int) ([]int64, error) {
	tok, err := p.dec.ReadToken()
	if err != nil || tok.Kind() != '[' {
		return nil, p.fail(name, key+" is not an array", err)
	}
	values := []int64{}
	for {
		tok, err := p.dec.ReadToken()
		switch {
		case err != nil:
			return nil, p.fail(name, key+" is not JSON", err)
		case tok.Kind() == ']':
			return values, nil
		case len(values) == limit:
			return nil, p.fail(name, fmt.Sprintf("%s has more than %d numbers", key, limit), nil)
		case tok.Kind() != '0':
			return nil, p.fail(name, key+" holds something that is not a number", nil)
		}
		v, err := strconv.ParseUint(tok.String(), 10, 63)
		if err != nil {
			return nil, p.fail(name, fmt.Sprintf("%s: %s is not a whole number from 0 to 2^63-1", key, tok), nil)
		}
		values = append(values, int64(v))
	}
}

// checkLayout sorts records by offset and checks that they cover the data
// bytes exactly: each in the file, of the size that its type and shape say,
// none overlapping, no hole and nothing left at the end.
func checkLayout(records []record, start, size int64) error {
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	next, last := int64(0), ""
	for _, r := range records {
		fail := func(format string, args ...any) error {
			offset := start
			if r.begin <= math.MaxInt64-start {
				offset += r.begin
			}
			return &reason{tensor: r.name, offset: offset, text: fmt.Sprintf(format, args...)}
		}
		if r.begin > r.end {
			return fail("data_offsets [%d, %d] run backwards", r.begin, r.end)
		}
		if r.end > size {
			return fail("data_offsets [%d, %d] end outside of the file, which has %d data bytes", r.begin, r.end, size)
		}
		want, ok := r.bytes()
		if !ok {
			return fail("size of shape %v of %s overflows or is no whole number of bytes", r.shape, r.storage)
		}
		if want != r.end-r.begin {
			return fail("shape %v of %s needs %d bytes, data_offsets give %d", r.shape, r.storage, want, r.end-r.begin)
		}
		if r.begin < next {
			return fail("overlaps tensor %q", last)
		}
		if r.begin > next {
			return fail("%d bytes before it belong to no tensor", r.begin-next)
		}
		next, last = r.end, r.name
	}
	if next != size {
		return &reason{offset: start + next, text: fmt.Sprintf("%d bytes after the last tensor belong to none", size-next)}
	}
	return nil
}

// bytes is the size that type and shape ask for.
func (r record) bytes() (int64, bool) {
	n, ok := tensor.Elements(r.shape)
	bits := storages[r.storage].bits
	if !ok || bits == 0 || n > math.MaxInt64/bits || n*bits%8 != 0 {
		return 0, false
	}
	return n * bits / 8, true
}
