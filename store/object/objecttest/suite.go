package objecttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"athanor/store/object"
)

// Run runs the suite. open returns an empty store of its own for each test.
func Run(t *testing.T, open func(t *testing.T) object.Store) {
	for _, tt := range []struct {
		name string
		test func(t *testing.T, s object.Store)
	}{
		{"Life", testLife},
		{"Ranges", testRanges},
		{"Empty", testEmpty},
		{"List", testList},
		{"ListPages", testListPages},
		{"Absent", testAbsent},
		{"PutIfAbsent", testPutIfAbsent},
		{"FailedPutLeavesNothing", testFailedPut},
		{"CancelledPutLeavesNothing", testCancelledPut},
		{"EndedContext", testEndedContext},
		{"ReaderEndsWithContext", testReaderContext},
		{"InvalidKeys", testInvalidKeys},
		{"OddKeys", testOddKeys},
		{"KeyUnderKey", testKeyUnderKey},
		{"ConcurrentPuts", testConcurrentPuts},
		{"Large", testLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			tt.test(t, s)
		})
	}
}

// put stores content and checks what Put says about it.
func put(t *testing.T, s object.Store, key, content string) {
	t.Helper()
	info, err := s.Put(t.Context(), key, strings.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatalf("Put(%q): %v", key, err)
	}
	want := object.Info{Key: key, Size: int64(len(content)), SHA256: sha(content)}
	if info != want {
		t.Errorf("Put(%q) = %+v, want %+v", key, info, want)
	}
}

// get reads a range; length -1 is all.
func get(t *testing.T, s object.Store, key string, offset, length int64) string {
	t.Helper()
	r, _, err := s.Get(t.Context(), key, offset, length)
	if err != nil {
		t.Fatalf("Get(%q, %d, %d): %v", key, offset, length, err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %q: %v", key, err)
	}
	return string(data)
}

// keys lists all keys under a prefix.
func keys(t *testing.T, s object.Store, prefix string) string {
	t.Helper()
	list, err := s.List(t.Context(), prefix, "", 0)
	if err != nil {
		t.Fatalf("List(%q): %v", prefix, err)
	}
	var names []string
	for _, info := range list {
		names = append(names, info.Key)
	}
	return strings.Join(names, " ")
}

func sha(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func testLife(t *testing.T, s object.Store) {
	const key = "models/m-1/model.onnx"
	put(t, s, key, "first")
	put(t, s, key, "second, longer")
	if got := get(t, s, key, 0, -1); got != "second, longer" {
		t.Errorf("after two puts: %q", got)
	}
	info, err := s.Stat(t.Context(), key)
	if err != nil || info.Size != 14 || info.Key != key || info.ModTime.IsZero() {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	old, _, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	put(t, s, key, "third")
	for range 2 { // deleting what is gone is fine
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete: %v", err)
		}
	}
	if data, err := io.ReadAll(old); err != nil || string(data) != "second, longer" {
		t.Errorf("a reader opened before shows %q, %v", data, err)
	}
	if _, err := s.Stat(t.Context(), key); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("Stat after Delete: %v", err)
	}
	if got := keys(t, s, ""); got != "" {
		t.Errorf("after Delete the store lists %q", got)
	}
	put(t, s, key, "again")
}

func testRanges(t *testing.T, s object.Store) {
	put(t, s, "r", "0123456789")
	for _, tt := range []struct {
		offset, length int64
		want           string
	}{
		{0, -1, "0123456789"}, {3, -1, "3456789"}, {0, 1, "0"}, {3, 4, "3456"}, {9, 1, "9"}, {0, 10, "0123456789"},
		{0, 99, "0123456789"}, {8, 99, "89"}, {8, 1<<63 - 1, "89"}, {0, 1<<63 - 1, "0123456789"},
		{0, 0, ""}, {5, 0, ""}, {10, 0, ""}, {10, -1, ""}, {10, 5, ""},
	} {
		if got := get(t, s, "r", tt.offset, tt.length); got != tt.want {
			t.Errorf("Get(%d, %d) = %q, want %q", tt.offset, tt.length, got, tt.want)
		}
		r, info, err := s.Get(t.Context(), "r", tt.offset, tt.length)
		if err != nil || info.Size != 10 {
			t.Errorf("Get(%d, %d) gives a size of %d, %v, want that of the whole", tt.offset, tt.length, info.Size, err)
		} else if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for _, bad := range [][2]int64{{11, -1}, {11, 0}, {99, 1}, {-1, 1}, {-1, -1}, {0, -2}, {1<<63 - 1, 1<<63 - 1}} {
		if _, _, err := s.Get(t.Context(), "r", bad[0], bad[1]); !errors.Is(err, object.ErrRange) {
			t.Errorf("Get(%d, %d): %v, want ErrRange", bad[0], bad[1], err)
		}
	}
}

func testEmpty(t *testing.T, s object.Store) {
	put(t, s, "empty", "")
	if got := get(t, s, "empty", 0, -1); got != "" {
		t.Errorf("the empty blob reads as %q", got)
	}
	if info, err := s.Put(t.Context(), "unknown", strings.NewReader(""), -1); err != nil || info.Size != 0 || info.SHA256 != sha("") {
		t.Errorf("an empty body of unknown size: %+v, %v", info, err)
	}
	if info, err := s.Stat(t.Context(), "unknown"); err != nil || info.Size != 0 {
		t.Errorf("Stat = %+v, %v", info, err)
	}
}

func testAbsent(t *testing.T, s object.Store) {
	put(t, s, "dir/file", "x")
	for _, key := range []string{"none", "dir", "dir/none", "dir/file/under", "none/under"} {
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("Stat(%q): %v, want ErrNotFound", key, err)
		}
		if _, _, err := s.Get(t.Context(), key, 0, -1); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("Get(%q): %v, want ErrNotFound", key, err)
		}
		if _, _, err := s.Get(t.Context(), key, 1, 0); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("Get(%q) of nothing: %v, want ErrNotFound", key, err)
		}
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%q): %v", key, err)
		}
	}
	if got := keys(t, s, ""); got != "dir/file" {
		t.Errorf("afterwards the store lists %q", got)
	}
	for _, prefix := range []string{"none", "none/", "dir/file/"} {
		if got := keys(t, s, prefix); got != "" {
			t.Errorf("List(%q) = %q", prefix, got)
		}
	}
}

func testPutIfAbsent(t *testing.T, s object.Store) {
	const n = 8
	won := make([]bool, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := s.PutIfAbsent(t.Context(), "lease/one", strings.NewReader(fmt.Sprint(i)), 1)
			if err != nil && !errors.Is(err, object.ErrExists) {
				t.Errorf("PutIfAbsent: %v", err)
			}
			won[i] = err == nil
		})
	}
	wg.Wait()
	winner := ""
	for i := range n {
		if won[i] {
			winner += fmt.Sprint(i)
		}
	}
	if got := get(t, s, "lease/one", 0, -1); got != winner {
		t.Errorf("%q have won, the blob is of %q", winner, got)
	}
	long := strings.Repeat("x", 6<<20) // more than one part
	if _, err := s.PutIfAbsent(t.Context(), "lease/one", strings.NewReader(long), -1); !errors.Is(err, object.ErrExists) {
		t.Errorf("PutIfAbsent of a long body: %v, want ErrExists", err)
	}
	if got := get(t, s, "lease/one", 0, -1); got != winner {
		t.Errorf("the refused put has left %d bytes", len(got))
	}
	if err := s.Delete(t.Context(), "lease/one"); err != nil {
		t.Fatal(err)
	}
	info, err := s.PutIfAbsent(t.Context(), "lease/one", strings.NewReader("new"), -1)
	if err != nil || info.SHA256 != sha("new") {
		t.Errorf("after Delete: %+v, %v", info, err)
	}
}

// errBody is what the bodies of the failing puts fail with.
var errBody = errors.New("the client hung up")

func testFailedPut(t *testing.T, s object.Store) {
	put(t, s, "kept", "old")
	long := strings.Repeat("x", 6<<20) // more than one part
	bodies := []struct {
		name string
		body io.Reader
		size int64
		want error
	}{
		{"short", strings.NewReader("abc"), 4, object.ErrSize},
		{"long", strings.NewReader("abc"), 2, object.ErrSize},
		{"not empty", strings.NewReader("a"), 0, object.ErrSize},
		{"short parts", strings.NewReader(long), 7 << 20, object.ErrSize},
		{"long parts", strings.NewReader(long), 6<<20 - 1, object.ErrSize},
		{"one part too many", strings.NewReader(long), 5 << 20, object.ErrSize},
		{"failing", io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(errBody)), -1, errBody},
		{"failing parts", io.MultiReader(strings.NewReader(long), iotest.ErrReader(errBody)), -1, errBody},
		{"cut off", io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, io.ErrUnexpectedEOF},
		{"cut off at a known size", iotest.ErrReader(io.ErrUnexpectedEOF), 3, io.ErrUnexpectedEOF},
		{"negative", strings.NewReader("abc"), -2, object.ErrSize},
	}
	for _, b := range bodies {
		if _, err := s.Put(t.Context(), "kept", b.body, b.size); !errors.Is(err, b.want) {
			t.Errorf("%s: %v, want %v", b.name, err, b.want)
		}
	}
	if _, err := s.PutIfAbsent(t.Context(), "fresh/one", strings.NewReader("abc"), 4); !errors.Is(err, object.ErrSize) {
		t.Errorf("PutIfAbsent with a short body: %v", err)
	}
	if got := get(t, s, "kept", 0, -1); got != "old" {
		t.Errorf("the old blob is now %q", got)
	}
	if got := keys(t, s, ""); got != "kept" {
		t.Errorf("the store lists %q", got)
	}
}

// cancelAfter cancels a context when n bytes have been read.
type cancelAfter struct {
	r      io.Reader
	n      int
	cancel func()
}

func (c *cancelAfter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n -= n; c.n <= 0 {
		c.cancel()
	}
	return n, err
}

func testCancelledPut(t *testing.T, s object.Store) {
	long := bytes.Repeat([]byte("x"), 6<<20)
	for _, after := range []int{1, 5<<20 + 1, len(long)} {
		ctx, cancel := context.WithCancel(t.Context())
		body := &cancelAfter{r: bytes.NewReader(long), n: after, cancel: cancel}
		if _, err := s.Put(ctx, "cancelled", body, -1); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled after %d bytes: %v, want context.Canceled", after, err)
		}
		cancel()
	}
	if got := keys(t, s, ""); got != "" {
		t.Errorf("the store lists %q", got)
	}
}

func testEndedContext(t *testing.T, s object.Store) {
	put(t, s, "a", "x")
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, errPut := s.Put(ctx, "b", strings.NewReader("x"), 1)
	_, errAbsent := s.PutIfAbsent(ctx, "b", strings.NewReader("x"), 1)
	_, _, errGet := s.Get(ctx, "a", 0, -1)
	_, errStat := s.Stat(ctx, "a")
	_, errList := s.List(ctx, "", "", 0)
	errDelete := s.Delete(ctx, "a")
	for name, err := range map[string]error{
		"Put": errPut, "PutIfAbsent": errAbsent, "Get": errGet, "Stat": errStat, "List": errList, "Delete": errDelete,
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want context.DeadlineExceeded", name, err)
		}
	}
	if got := keys(t, s, ""); got != "a" {
		t.Errorf("the store lists %q", got)
	}
}

func testReaderContext(t *testing.T, s object.Store) {
	put(t, s, "a", strings.Repeat("x", 1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _, err := s.Get(ctx, "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("reading on after the cancellation: %v, want context.Canceled", err)
	}
}
