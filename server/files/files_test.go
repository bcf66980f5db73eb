package files_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"athanor/server/api"
	"athanor/server/files"
	"athanor/store"
	"athanor/store/object"
	"athanor/store/resource"
)

// TestPartsBecomeOneFile sends parts in any order, one of them twice, and reads
// the file before and after they are joined.
func TestPartsBecomeOneFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	all := strings.Repeat(sample, 10)
	cuts := []string{all[:100], all[100:500], all[500:]}
	var u api.Upload
	w.call("POST", "/files/multipart/initiate", map[string]any{"purpose": "fine-tune", "file_name": "b.jsonl", "file_size": len(all), "num_parts": 3}, &u)
	var done []map[string]any
	put := func(n int, content string) {
		resp, body := w.send("PUT", u.Parts[n].URL, strings.NewReader(content))
		if resp.StatusCode != 200 || resp.Header.Get("Etag") != hash(content) {
			t.Fatalf("part %d: got %d %s %s", n+1, resp.StatusCode, resp.Header.Get("Etag"), body)
		}
	}
	put(2, cuts[2])
	put(0, "this was cut off")
	put(0, cuts[0])
	var now api.Upload
	w.call("GET", "/files/multipart/"+u.UploadID, nil, &now)
	if now.Parts[0].ETag != hash(cuts[0]) || now.Parts[1].ETag != "" || now.Parts[2].Size != int64(len(cuts[2])) {
		t.Errorf("progress: %+v", now.Parts)
	}
	put(1, cuts[1])
	for n, c := range cuts {
		done = append(done, map[string]any{"part_number": n + 1, "etag": hash(c)})
	}
	if resp, body := w.send("PUT", strings.Replace(u.Parts[0].URL, "parts/1", "parts/4", 1), strings.NewReader("x")); resp.StatusCode != 401 {
		t.Errorf("part 4 of 3: got %d %s", resp.StatusCode, body)
	}
	w.settle() // what was replaced is deleted
	if got := len(w.stored()); got != 3 {
		t.Errorf("%d objects for 3 parts: %q", got, w.stored())
	}
	var out, again api.CompletedUpload
	complete := map[string]any{"upload_id": u.UploadID, "file_id": u.FileID, "parts": done}
	w.call("POST", "/files/multipart/complete", complete, &out)
	w.call("POST", "/files/multipart/complete", complete, &again) // the answer was lost on its way
	if out.File.ProcessingStatus != "QUEUED" || again.File.ID != out.File.ID || out.File.Bytes != int64(len(all)) {
		t.Errorf("completed: %+v, again %+v", out, again)
	}
	read := func(when string) {
		t.Helper()
		resp, body := w.send("GET", "/files/"+u.FileID+"/content", nil)
		if body != all || resp.ContentLength != int64(len(all)) {
			t.Errorf("%s: got %d bytes of %d", when, len(body), len(all))
		}
		if _, body := w.send("GET", "/files/"+u.FileID+"/content", nil, "Range", "bytes=90-510"); body != all[90:511] {
			t.Errorf("%s: a range across parts is %q", when, body)
		}
	}
	read("in parts")
	w.settle()
	read("joined")
	if f := w.file(u.FileID); f.ProcessingStatus != "COMPLETED" || f.ValidationReport.NLines != 10 || f.ValidationReport.DuplicateLines != 9 {
		t.Errorf("in the end: %+v", f)
	}
	if got := w.stored(); len(got) != 1 || !strings.HasPrefix(got[0], "files/"+u.FileID+"/") {
		t.Errorf("objects in the end: %q", got)
	}
	if resp, _ := w.send("PUT", u.Parts[0].URL, strings.NewReader("late")); resp.StatusCode != 404 {
		t.Errorf("a part after the end: got %d", resp.StatusCode)
	}
}

// TestNothingStays deletes files in every state, and finds nothing left of them.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{File: 1000, Part: 100})
	deleted := func(id string) {
		t.Helper()
		var out api.FileDeleted
		w.call("DELETE", "/files/"+id, nil, &out)
		if !out.Deleted || out.Object != "file" || out.ID != id {
			t.Errorf("deletion: %+v", out)
		}
	}
	deleted(w.upload("a.jsonl", "fine-tune", sample).ID) // before ingestion
	f := w.upload("a.jsonl", "fine-tune", sample)
	w.settle()
	deleted(f.ID)
	var u api.Upload
	w.call("POST", "/files/multipart/initiate", map[string]any{"purpose": "eval", "file_name": "b.jsonl", "file_size": 300, "num_parts": 3}, &u)
	if resp, body := w.send("PUT", u.Parts[0].URL, strings.NewReader(strings.Repeat("x", 100))); resp.StatusCode != 200 {
		t.Fatalf("part: got %d %s", resp.StatusCode, body)
	}
	if resp, _ := w.send("PUT", u.Parts[1].URL, strings.NewReader(strings.Repeat("x", 101))); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a part over the limit: got %d", resp.StatusCode)
	}
	deleted(u.FileID)
	resp, _ := w.send("POST", "/files?purpose=eval&file_name=a.jsonl", nil)
	if resp, body := w.send("PUT", resp.Header.Get("Location"), &endless{left: 1001}); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a file over the limit: got %d %s", resp.StatusCode, body)
	}
	deleted(resp.Header.Get("X-Together-File-Id"))
	batch := w.upload("c.jsonl", "batch-api", "{}")
	w.clock.Advance(7*day - 1)
	w.settle()
	if got := w.file(batch.ID); got.ExpiresAt == nil || got.ProcessingStatus != "COMPLETED" || got.ValidationReport != nil {
		t.Errorf("within seven days: %+v", got)
	}
	w.clock.Advance(1)
	w.settle()
	if resp, _ := w.send("GET", "/files/"+batch.ID, nil); resp.StatusCode != 404 {
		t.Errorf("after seven days: got %d", resp.StatusCode)
	}
	w.clock.Advance(3 * day)
	w.settle()
	err := w.db.View(func(tx *store.Tx) error {
		jobs, _, err := store.Jobs.List(tx, "", store.Page{})
		uploads, _, uerr := store.Uploads.List(tx, "", store.Page{})
		if len(jobs) > 0 || len(uploads) > 0 || len(w.stored()) > 0 {
			t.Errorf("left: jobs %v, uploads %v, objects %q", jobs, uploads, w.stored())
		}
		return errors.Join(err, uerr)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSweep finds the object that a process was writing when it died.
func TestSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	kept := w.upload("a.jsonl", "eval", "{}")
	w.settle()
	orphan := "files/file-99/object-1"
	if _, err := w.objects.Put(t.Context(), orphan, strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	now := w.clock.Now()
	err := w.db.Update(t.Context(), func(tx *store.Tx) error {
		return store.Jobs.Insert(tx, "job-99", &resource.Job{ID: "job-99", Kind: "file-discard", Subject: orphan, Status: resource.JobQueued, DueAt: now.Add(day)})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.settle()
	if len(w.stored()) != 2 {
		t.Fatalf("what is being written was deleted: %q", w.stored())
	}
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.stored(); len(got) != 1 || !strings.HasPrefix(got[0], "files/"+kept.ID) {
		t.Errorf("after the sweep: %q", got)
	}
}

// broken fails every read.
type brokenStore struct{ object.Store }

func (brokenStore) Get(context.Context, string, int64, int64) (io.ReadCloser, object.Info, error) {
	return nil, object.Info{}, object.ErrUnavailable
}

func TestIngestionThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	f := w.upload("a.jsonl", "fine-tune", sample)
	s := files.New(w.kit, w.db, brokenStore{w.objects}, nil, files.Limits{})
	ingest := s.Kinds()[0]
	job := resource.Job{ID: "job-1", Kind: ingest.Name, Subject: f.ID}
	if err := ingest.Run(t.Context(), job); !errors.Is(err, object.ErrUnavailable) {
		t.Errorf("ingestion: %v", err)
	}
	if got := w.file(f.ID); got.ProcessingStatus != "RUNNING" {
		t.Errorf("between two tries: %+v", got)
	}
	err := w.db.Update(t.Context(), func(tx *store.Tx) error { return ingest.GiveUp(tx, job, errors.New("oops"), w.clock.Now()) })
	if err != nil {
		t.Fatal(err)
	}
	if got := w.file(f.ID); got.ProcessingStatus != "FAILED" || got.ValidationReport == nil || got.ValidationReport.Valid || got.ValidationReport.Error != "" {
		t.Errorf("given up: %+v", got)
	}
	w.settle() // its job finds that all is over
	if got := w.file(f.ID); got.ProcessingStatus != "FAILED" {
		t.Errorf("later: %+v", got)
	}
}

// endless gives lines of training data without end, or up to left bytes.
type endless struct {
	left int64
	peak *atomic.Uint64 // heap in bytes, looked at now and then
	n    int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && e.left > 0 {
		p[n] = sample[e.n%len(sample)]
		e.n++
		n++
		e.left--
	}
	if e.peak != nil && e.n%(1<<22) < n {
		e.peak.Store(max(e.peak.Load(), heap()))
	}
	return n, nil
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemoryIsBounded streams a large file in, validates and reads it, in a heap
// that does not grow with it.
func TestMemoryIsBounded(t *testing.T) {
	size := int64(len(sample)) << 18 // 20 MiB
	if os.Getenv("ATHANOR_LARGE") != "" {
		size <<= 4 // 320 MiB
	} else if testing.Short() {
		t.Skip("skipped by -short: moves 20 MiB")
	}
	w := newWorld(t, files.Limits{})
	runtime.GC()
	base := heap()
	var peak atomic.Uint64
	resp, _ := w.send("POST", "/files?purpose=fine-tune&file_name=large.jsonl", nil)
	resp, body := w.send("PUT", resp.Header.Get("Location"), &endless{left: size, peak: &peak})
	if resp.StatusCode != 200 {
		t.Fatalf("got %d %s", resp.StatusCode, body)
	}
	w.settle()
	peak.Store(max(peak.Load(), heap()))
	var f api.FileList
	w.call("GET", "/files", nil, &f)
	if got := f.Data[0]; got.ProcessingStatus != "COMPLETED" || got.Bytes != size || got.LineCount != size/int64(len(sample)) {
		t.Errorf("got %+v", got)
	}
	grown := int64(peak.Load()) - int64(base)
	t.Logf("%d MiB in a heap that grew by %d MiB", size>>20, grown>>20)
	const most = 64 << 20
	if grown > most {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// TestHostileNames keeps names from leading anywhere.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	for name, want := range map[string]string{
		"../../etc/passwd": "passwd", `C:\x\y.jsonl`: "y.jsonl", "a/b/": "b", "..": "400", "": "400", "/": "400",
		"a\x00b": "400", "a\nb": "400", strings.Repeat("x", 256): "400", "\xff": "400", "é.jsonl": "é.jsonl",
	} {
		resp, body := w.send("POST", "/files", strings.NewReader("purpose=eval&file_name="+escape(name)), "Content-Type", "application/x-www-form-urlencoded")
		got := "400"
		if resp.StatusCode == 302 {
			got = w.file(resp.Header.Get("X-Together-File-Id")).Filename
		}
		if got != want {
			t.Errorf("%q: got %q, want %q (%s)", name, got, want, body)
		}
	}
	for _, key := range w.stored() {
		if filepath.Clean(key) != key || slices.Contains(strings.Split(key, "/"), "..") {
			t.Errorf("an object %q", key)
		}
	}
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString("%" + string("0123456789ABCDEF"[s[i]>>4]) + string("0123456789ABCDEF"[s[i]&15]))
	}
	return b.String()
}

// FuzzMultipart sends any bytes as a multipart body: the answer is always a file
// or an error of the client, and nothing stays behind a refusal.
func FuzzMultipart(f *testing.F) {
	head := "--cut\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\neval\r\n"
	part := "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{}\r\n"
	for _, s := range []string{head + part + "--cut--\r\n", part + head + "--cut--", head + head + part, part + part, head[:30], "", strings.Repeat(head, 40), part + "--cut--"} {
		f.Add([]byte(s))
	}
	shared := newWorld(f, files.Limits{File: 10000})
	f.Fuzz(func(t *testing.T, body []byte) {
		one := *shared
		w := &one
		w.t = t
		before := len(w.stored())
		resp, answer := w.send("POST", "/files", strings.NewReader(string(body)), "Content-Type", "multipart/form-data; boundary=cut")
		w.settle()
		if resp.StatusCode != 200 && (resp.StatusCode < 400 || resp.StatusCode >= 500 || len(w.stored()) != before) {
			t.Fatalf("got %d %s, objects %q", resp.StatusCode, answer, w.stored())
		}
	})
}
