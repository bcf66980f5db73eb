package finetunes

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"athanor/store/object"
	"athanor/store/resource"
)

// Constants of the zstd format. (RFC 8878, section 3.1.1.)
const (
	zstdMagic    = 0xfd2fb528
	zstdBlock    = 128 << 10 // the most bytes of a block
	zstdBlockTop = 3         // bytes before a block
	zstdTop      = 14        // bytes before the first block: magic, descriptor, window, size
)

// archive is a .tar.zst of files in the object store that is never written down:
// its blocks are stored, not compressed (trained weights hardly shrink), so every
// byte has a place that can be computed, and any range can be served. The same
// files give the same bytes.
type archive struct {
	objects  object.Store
	segments []segment
	tarSize  int64
	etag     string
}

// segment is a piece of the tar: an object, or bytes of its own.
type segment struct {
	at, size int64
	bytes    []byte
	key      string
}

// newArchive lays the files out in order of their paths.
func newArchive(objects object.Store, files []resource.ModelFile) (*archive, error) {
	a := &archive{objects: objects}
	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(x, y resource.ModelFile) int { return strings.Compare(x.Path, y.Path) })
	digest := sha256.New()
	for _, f := range sorted {
		fmt.Fprintf(digest, "%s %d %s\n", f.SHA256, f.Size, f.Path)
		var top bytes.Buffer
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: f.Size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := tar.NewWriter(&top).WriteHeader(h); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.Path, err)
		}
		a.add(segment{bytes: top.Bytes(), size: int64(top.Len())})
		a.add(segment{key: f.ObjectKey, size: f.Size})
		if rest := f.Size % 512; rest > 0 {
			a.add(segment{bytes: make([]byte, 512-rest), size: 512 - rest})
		}
	}
	a.add(segment{bytes: make([]byte, 1024), size: 1024}) // the end of a tar
	a.etag = hex.EncodeToString(digest.Sum(nil))
	return a, nil
}

func (a *archive) add(s segment) {
	s.at = a.tarSize
	a.segments = append(a.segments, s)
	a.tarSize += s.size
}

// size is that of the whole archive in bytes.
func (a *archive) size() int64 {
	blocks := (a.tarSize + zstdBlock - 1) / zstdBlock
	return zstdTop + blocks*zstdBlockTop + a.tarSize
}

// open gives length bytes of the archive from offset on.
func (a *archive) open(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	r := &archiveReader{archive: a, ctx: ctx, at: offset, end: offset + length}
	return r, nil
}

// archiveReader reads a range of an archive.
type archiveReader struct {
	archive *archive
	ctx     context.Context
	at, end int64         // in the archive
	object  io.ReadCloser // of the segment at tarAt, nil when none is open
	tarAt   int64         // where object goes on in the tar
}

func (r *archiveReader) Read(p []byte) (n int, err error) {
	if r.at >= r.end {
		return 0, io.EOF
	}
	if int64(len(p)) > r.end-r.at {
		p = p[:r.end-r.at]
	}
	if r.at < zstdTop {
		n = copy(p, r.archive.top()[r.at:])
	} else {
		block := (r.at - zstdTop) / (zstdBlockTop + zstdBlock)
		in := (r.at - zstdTop) % (zstdBlockTop + zstdBlock)
		if in < zstdBlockTop {
			n = copy(p, r.archive.blockTop(block)[in:])
		} else {
			p = p[:min(int64(len(p)), zstdBlockTop+zstdBlock-in)]
			n, err = r.readTar(p, block*zstdBlock+in-zstdBlockTop)
		}
	}
	r.at += int64(n)
	return n, err
}

// top is the header of the zstd frame: the size of the content is known, the
// window is one block, there is no checksum.
func (a *archive) top() []byte {
	b := binary.LittleEndian.AppendUint32(nil, zstdMagic)
	b = append(b, 3<<6, 7<<3) // 8 bytes of size; a window of 2^(10+7) bytes
	return binary.LittleEndian.AppendUint64(b, uint64(a.tarSize))
}

// blockTop is the header of block n: whether it is the last one, "stored", its size.
func (a *archive) blockTop(n int64) []byte {
	left := a.tarSize - n*zstdBlock
	v := uint32(min(left, zstdBlock)) << 3
	if left <= zstdBlock {
		v |= 1
	}
	return []byte{byte(v), byte(v >> 8), byte(v >> 16)}
}

// readTar reads bytes of the tar at a position, from one segment.
func (r *archiveReader) readTar(p []byte, at int64) (int, error) {
	list := r.archive.segments
	i := sort.Search(len(list), func(i int) bool { return list[i].at+list[i].size > at })
	if i == len(list) {
		return 0, io.ErrUnexpectedEOF
	}
	s := list[i]
	if s.bytes != nil {
		return copy(p, s.bytes[at-s.at:]), nil
	}
	if r.object == nil || r.tarAt != at {
		if err := r.closeObject(); err != nil {
			return 0, err
		}
		body, info, err := r.archive.objects.Get(r.ctx, s.key, at-s.at, -1)
		if err != nil {
			return 0, err
		}
		r.object, r.tarAt = body, at
		if info.Size != s.size {
			return 0, fmt.Errorf("object %s has %d bytes instead of %d", s.key, info.Size, s.size)
		}
	}
	p = p[:min(int64(len(p)), s.at+s.size-at)]
	n, err := r.object.Read(p)
	if r.tarAt += int64(n); r.tarAt == s.at+s.size {
		return n, r.closeObject()
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (r *archiveReader) closeObject() error {
	if r.object == nil {
		return nil
	}
	err := r.object.Close()
	r.object = nil
	return err
}

// Close may be called at any place.
func (r *archiveReader) Close() error { return r.closeObject() }
