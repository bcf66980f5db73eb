package object

import (
	"context"
	"errors"
	"io"
	"time"
)

// What the methods of a Store return, wrapped with what was being done.
var (
	// ErrNotFound is returned when no blob has the key.
	ErrNotFound = errors.New("object not found")
	// ErrExists is returned by PutIfAbsent when a blob has the key.
	ErrExists = errors.New("object already exists")
	// ErrInvalidKey is returned for a key or prefix that ValidateKey refuses, and for
	// a key under another blob's key ("a/b" beside "a") where the store can't have both.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrSize is returned when a body is not as long as announced.
	ErrSize = errors.New("body has the wrong size")
	// ErrRange is returned by Get when the offset is negative or behind the end.
	ErrRange = errors.New("offset outside the object")
	// ErrDenied is returned when the server refuses the credentials or the operation.
	ErrDenied = errors.New("access denied")
	// ErrUnavailable is returned when the server can't be reached or fails.
	ErrUnavailable = errors.New("object store unavailable")
	// ErrNoConditionalWrites is returned by OpenS3 for a server that ignores the
	// condition of PutIfAbsent.
	ErrNoConditionalWrites = errors.New("the server ignores conditional writes")
)

// Info describes a blob.
type Info struct {
	Key     string
	Size    int64     // bytes
	SHA256  string    // hex; only Put and PutIfAbsent, which see the bytes, fill it in
	ModTime time.Time // by the clock of the disk or server; zero from Put
}

// Store keeps blobs by key. Its methods may be called from any goroutine. All of
// them return ErrInvalidKey for a bad key, and the error of ctx when it ends first.
type Store interface {
	// Put reads body to its end and stores it, replacing a blob of the same key at
	// once: a reader sees the old or the new one. size is the length of body, or -1
	// if unknown. On an error the old blob stays. A body that blocks is waited for:
	// ctx is looked at between its reads.
	Put(ctx context.Context, key string, body io.Reader, size int64) (Info, error)

	// PutIfAbsent is Put, but returns ErrExists, and changes nothing, if there is a
	// blob. Of several at a time one wins. The body may have been read.
	PutIfAbsent(ctx context.Context, key string, body io.Reader, size int64) (Info, error)

	// Get opens length bytes from offset on, or all to the end if length is -1; a
	// blob that ends earlier gives fewer. Info is of the whole blob. The reader is not
	// for several goroutines at a time, must be closed, and ends with ctx. It shows
	// one version of the blob even if that is replaced or deleted meanwhile.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error)

	// Stat describes a blob.
	Stat(ctx context.Context, key string) (Info, error)

	// Delete removes a blob; an absent one is fine.
	Delete(ctx context.Context, key string) error

	// List returns the blobs whose keys begin with prefix (which need not end at a
	// slash) and sort behind after, in the order of their bytes, at most limit: 0
	// means 1000, which is also the most. To go on, pass the last key as after.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)

	// Close releases what the store holds. Readers stay good.
	Close() error
}

// Filer is implemented by a Store whose blobs are files.
type Filer interface {
	// Path returns the absolute path of a blob, to be mapped or read, never written.
	// The file keeps its content even if the blob is replaced, for those who have it
	// open.
	Path(key string) (string, error)
}

// Presigner is implemented by a Store that can hand a blob out by URL.
type Presigner interface {
	// PresignGet returns a URL that anyone may GET for the time ttl, between a second
	// and seven days, without other credentials. It does not look whether the blob
	// exists.
	PresignGet(ctx context.Context, key string, ttl time.Duration) (string, error)
}

const maxList = 1000

func listLimit(n int) int {
	if n <= 0 || n > maxList {
		return maxList
	}
	return n
}
