package weights

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// FuzzHeader checks that no header makes readHeader fail otherwise than with a
// *reason, and that what it accepts covers the data bytes exactly.
func FuzzHeader(f *testing.F) {
	for _, h := range []string{
		`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"s":{"dtype":"I64","shape":[],"data_offsets":[24,32]}}  `,
		`{"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`,
		`{"w":{"dtype":"F4","shape":[4294967296,4294967296],"data_offsets":[0,9223372036854775807]}}`,
		`{"w":{"dtype":"BF16","shape":[0,1],"x":[{}],"data_offsets":[0,0]}}`,
		`[`,
	} {
		f.Add(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), uint16(32))
	}
	f.Add(bytes.Repeat([]byte{255}, 9), uint16(0))
	f.Fuzz(func(t *testing.T, head []byte, data uint16) {
		content := append(bytes.Clone(head), make([]byte, data)...)
		records, start, err := readHeader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			if _, ok := err.(*reason); !ok {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		next := start
		for _, r := range records {
			n := int64(1)
			for _, d := range r.shape {
				n *= d
			}
			if start+r.begin != next || (n > 0 && n < math.MaxInt64/64 && n*storages[r.storage].bits/8 != r.end-r.begin) {
				t.Fatalf("%+v accepted at %d", r, next)
			}
			next = start + r.end
		}
		if next != int64(len(content)) {
			t.Fatalf("%d bytes belong to no tensor", int64(len(content))-next)
		}
	})
}
