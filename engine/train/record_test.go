package train

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	blocks := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{7}, 3<<20)}
	if err := writeRecord(realDisk{}, path, state{Step: 5}, blocks); err != nil {
		t.Fatal(err)
	}
	if err := checkRecord(path); err != nil {
		t.Fatal(err)
	}
	var st state
	r, err := openRecord(path, &st)
	if err != nil || st.Step != 5 {
		t.Fatalf("header %+v: %v", st, err)
	}
	defer r.close()
	for i, want := range blocks {
		got := make([]byte, len(want))
		if err := r.into(got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("block %d: %v", i, err)
		}
	}
	if _, err := r.size(); !errors.Is(err, errDamaged) {
		t.Errorf("a block after the last: %v", err)
	}
	if exists(path + partialSuffix) {
		t.Error("the partial file is left")
	}
}

// FuzzRecord reads any bytes as a record: no panic, no memory beyond the file's.
func FuzzRecord(f *testing.F) {
	path := filepath.Join(f.TempDir(), "record")
	if err := writeRecord(realDisk{}, path, state{Step: 5}, [][]byte{[]byte("one")}); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{good, good[:20], nil, []byte("athanor1\xff\xff\xff\xff")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		whole := checkRecord(path) == nil
		if whole && len(raw) == len(good) && !bytes.Equal(raw, good) && bytes.Equal(raw[len(raw)-32:], good[len(good)-32:]) {
			t.Error("other bytes have the same sum")
		}
		var st state
		r, err := openRecord(path, &st)
		if err != nil {
			return
		}
		defer r.close()
		for range 8 {
			n, err := r.size()
			if err != nil {
				return
			}
			if n > int64(len(raw)) {
				t.Fatalf("a block of %d bytes in a file of %d", n, len(raw))
			}
			if err := r.read(make([]byte, n)); err != nil {
				return
			}
		}
	})
}
