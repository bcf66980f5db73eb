package objecttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"athanor/store/object"
)

func testList(t *testing.T, s object.Store) {
	// A slash sorts behind "-" and "." but before letters: the order of whole keys is
	// not that of directories.
	all := []string{"a-b", "a.b/c", "a/b", "a/c/d", "a/c/e", "a0", "ab/c", "b"}
	for _, key := range []string{"b", "a/c/e", "ab/c", "a-b", "a0", "a/b", "a.b/c", "a/c/d"} {
		put(t, s, key, key)
	}
	for prefix, want := range map[string][]string{
		"": all, "a": all[:7], "a/": all[2:5], "a/c": all[3:5], "a/c/": all[3:5], "a/b": all[2:3], "ab": all[6:7], "c": nil, "a/c/d": all[3:4],
	} {
		if got := keys(t, s, prefix); got != strings.Join(want, " ") {
			t.Errorf("List(%q) = %q, want %q", prefix, got, want)
		}
	}
	for _, after := range []string{"", "A", "a", "a-b", "a/", "a/b", "a/c", "a/c/d", "a/z", "a0", "b", "z"} {
		for _, prefix := range []string{"", "a/", "a/c"} {
			list, err := s.List(t.Context(), prefix, after, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, info := range list {
				got = append(got, info.Key)
				if info.Size != int64(len(info.Key)) || info.ModTime.IsZero() {
					t.Errorf("List describes %+v", info)
				}
			}
			for _, key := range all {
				if key > after && strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("List(%q) after %q = %q, want %q", prefix, after, got, want)
			}
		}
	}
}

func testListPages(t *testing.T, s object.Store) {
	var want []string
	for i := range 25 {
		key := fmt.Sprintf("p/%02d/x", i)
		put(t, s, key, "1")
		want = append(want, key)
	}
	put(t, s, "q", "1")
	for _, limit := range []int{1, 7, 25, 26} {
		var got []string
		for after := ""; ; {
			page, err := s.List(t.Context(), "p/", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit {
				t.Fatalf("a page of %d, limit %d", len(page), limit)
			}
			for _, info := range page {
				got = append(got, info.Key)
			}
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].Key
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q", limit, got)
		}
	}
}

func testInvalidKeys(t *testing.T, s object.Store) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", ".hidden", ".tmp/x", ".athanor-probe/x",
		"a\x00b", "a\nb", "a\x7fb", "a\u0085b", `a\b`, "a\xffb", strings.Repeat("a/", 16) + "a",
		strings.Repeat("a", 201), strings.Repeat(strings.Repeat("a", 100)+"/", 5) + strings.Repeat("a", 100),
	} {
		_, errPut := s.Put(t.Context(), key, strings.NewReader("x"), 1)
		_, errAbsent := s.PutIfAbsent(t.Context(), key, strings.NewReader("x"), 1)
		_, _, errGet := s.Get(t.Context(), key, 0, -1)
		_, errStat := s.Stat(t.Context(), key)
		errDelete := s.Delete(t.Context(), key)
		for name, err := range map[string]error{"Put": errPut, "PutIfAbsent": errAbsent, "Get": errGet, "Stat": errStat, "Delete": errDelete} {
			if !errors.Is(err, object.ErrInvalidKey) {
				t.Errorf("%s(%.30q): %v, want ErrInvalidKey", name, key, err)
			}
		}
	}
	for _, prefix := range []string{"../", "/", "/a", "a//b", "a/../b", ".tmp/", "a\x00", strings.Repeat("a", 513)} {
		if _, err := s.List(t.Context(), prefix, "", 0); !errors.Is(err, object.ErrInvalidKey) {
			t.Errorf("List(%.30q): %v, want ErrInvalidKey", prefix, err)
		}
	}
}

func testOddKeys(t *testing.T, s object.Store) {
	odd := []string{
		"a b+c", "per%20cent", "question?x=1&y=2", "hash#tag", "quote'\"<>", "colon:semi;comma,", "tilde~!$*()[]{}^|`@=",
		"ümläut/木", "🜍", "..dots/a", "a..b/c...", "a/.hidden", strings.Repeat("n", 200) + "/" + strings.Repeat("m", 200),
		strings.TrimSuffix(strings.Repeat("d/", 16), "/"),
	}
	var valid []string
	for _, key := range odd {
		if strings.HasPrefix(key, ".") {
			continue
		}
		put(t, s, key, "content of "+key)
		valid = append(valid, key)
	}
	for _, key := range valid {
		if got := get(t, s, key, 0, -1); got != "content of "+key {
			t.Errorf("%q holds %q", key, got)
		}
	}
	slices.Sort(valid)
	if got := keys(t, s, ""); got != strings.Join(valid, " ") {
		t.Errorf("List = %q, want %q", got, valid)
	}
	for _, key := range valid {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%q): %v", key, err)
		}
	}
	if got := keys(t, s, ""); got != "" {
		t.Errorf("after the deletes the store lists %q", got)
	}
}

// A store may keep a key under another key, or refuse it, but not lose either.
func testKeyUnderKey(t *testing.T, s object.Store) {
	put(t, s, "a/file", "file")
	put(t, s, "dir/sub/x", "x")
	type putter func(context.Context, string, io.Reader, int64) (object.Info, error)
	for name, put := range map[string]putter{"Put": s.Put, "PutIfAbsent": s.PutIfAbsent} {
		for _, key := range []string{"a/file/" + name, "dir/sub", "dir"} {
			_, err := put(t.Context(), key, strings.NewReader("new"), 3)
			switch {
			case err == nil:
				if got := get(t, s, key, 0, -1); got != "new" {
					t.Errorf("%s(%q) has stored %q", name, key, got)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Errorf("Delete(%q): %v", key, err)
				}
			case !errors.Is(err, object.ErrInvalidKey):
				t.Errorf("%s(%q): %v, want nil or ErrInvalidKey", name, key, err)
			}
		}
	}
	if get(t, s, "a/file", 0, -1) != "file" || get(t, s, "dir/sub/x", 0, -1) != "x" {
		t.Error("a blob has changed")
	}
}

func testConcurrentPuts(t *testing.T, s object.Store) {
	const writers = 8
	bodies := make([]string, writers)
	for i := range bodies {
		bodies[i] = strings.Repeat(fmt.Sprint(i), 100_000+i)
	}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range 3 {
				if _, err := s.Put(t.Context(), "same", strings.NewReader(bodies[i]), -1); err != nil {
					t.Errorf("Put: %v", err)
				}
				r, info, err := s.Get(t.Context(), "same", 0, -1)
				if err != nil {
					t.Errorf("Get: %v", err)
					continue
				}
				data, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil {
					t.Errorf("read: %v", err)
				}
				if !slices.Contains(bodies, string(data)) || int64(len(data)) != info.Size {
					t.Errorf("a reader sees a mixture: %d bytes, %d said", len(data), info.Size)
				}
			}
		})
	}
	wg.Wait()
	if got := keys(t, s, ""); got != "same" {
		t.Errorf("the store lists %q", got)
	}
}
