package train

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// A record is a file of a JSON header and blocks of bytes:
//
//	magic, uint32 length of the header, header
//	for each block: uint64 length, bytes
//	SHA-256 of all that
//
// It is written under another name, synced and renamed.

const (
	recordMagic     = "athanor1"
	maxRecordHeader = 1 << 20
	partialSuffix   = ".partial"
)

// errDamaged is returned for a record that is not whole.
var errDamaged = errors.New("the file is damaged")

// writeRecord makes path from header and blocks, atomically and durably.
func writeRecord(d disk, path string, header any, blocks [][]byte) error {
	if err := writeRecordTo(d, path+partialSuffix, header, blocks); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), errors.Join(err, d.Remove(path+partialSuffix)))
	}
	if err := d.Rename(path+partialSuffix, path); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(path))
}

func writeRecordTo(d disk, path string, header any, blocks [][]byte) error {
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if len(head) > maxRecordHeader {
		return fmt.Errorf("a header of %d bytes", len(head))
	}
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<20)
	// Errors of a bufio.Writer stay: Flush reports the first.
	_, _ = w.WriteString(recordMagic)
	_ = binary.Write(w, binary.LittleEndian, uint32(len(head)))
	_, _ = w.Write(head)
	for _, b := range blocks {
		_ = binary.Write(w, binary.LittleEndian, uint64(len(b)))
		_, _ = w.Write(b)
	}
	err = w.Flush()
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// checkRecord reads all of a record and compares its sum.
func checkRecord(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	n := info.Size() - sha256.Size
	if !info.Mode().IsRegular() || n < int64(len(recordMagic)) {
		return errDamaged
	}
	sum, tail := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.CopyN(sum, f, n); err != nil {
		return err
	}
	if _, err := io.ReadFull(f, tail); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), tail) {
		return errDamaged
	}
	return nil
}

// recordReader reads a record from its beginning.
type recordReader struct {
	f    *os.File
	in   *bufio.Reader
	left int64 // bytes before the sum
}

// openRecord reads the header into header. checkRecord says whether the rest
// can be trusted.
func openRecord(path string, header any) (*recordReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recordReader{f: f, in: bufio.NewReaderSize(f, 1<<20)}
	if err := r.begin(header); err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", filepath.Base(path), err), f.Close())
	}
	return r, nil
}

func (r *recordReader) begin(header any) error {
	info, err := r.f.Stat()
	if err != nil {
		return err
	}
	r.left = info.Size() - sha256.Size
	var fixed [len(recordMagic) + 4]byte
	if err := r.read(fixed[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(fixed[len(recordMagic):])
	if string(fixed[:len(recordMagic)]) != recordMagic || n > maxRecordHeader {
		return errDamaged
	}
	head := make([]byte, n)
	if err := r.read(head); err != nil {
		return err
	}
	if err := json.Unmarshal(head, header); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}

func (r *recordReader) read(to []byte) error {
	if int64(len(to)) > r.left {
		return errDamaged
	}
	r.left -= int64(len(to))
	_, err := io.ReadFull(r.in, to)
	return err
}

// size is the length of the next block.
func (r *recordReader) size() (int64, error) {
	var b [8]byte
	if err := r.read(b[:]); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(b[:])
	if n > uint64(r.left) {
		return 0, errDamaged
	}
	return int64(n), nil
}

// into fills to with the next block, which must have its size.
func (r *recordReader) into(to []byte) error {
	n, err := r.size()
	if err != nil {
		return err
	}
	if n != int64(len(to)) {
		return fmt.Errorf("a block of %d bytes where %d are expected", n, len(to))
	}
	return r.read(to)
}

func (r *recordReader) close() error { return r.f.Close() }

// digest collects values under names for a key.
type digest struct{ h hash.Hash }

func (d digest) add(name string, value []byte) {
	fmt.Fprintf(d.h, "%d:%s=%d:", len(name), name, len(value))
	d.h.Write(value)
}
