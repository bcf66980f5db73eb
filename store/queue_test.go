package store_test

import (
	"slices"
	"testing"

	"athanor/store"
	"athanor/store/resource"
	"athanor/store/storetest"
)

// TestQueue finds jobs through every index, and only where their state puts them.
func TestQueue(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	add := func(tx *store.Tx, id, kind, subject string, due int) error {
		j := &resource.Job{ID: resource.JobID(id), Kind: kind, Subject: subject, Status: resource.JobQueued, CreatedAt: day(1), DueAt: day(due)}
		return store.Jobs.Insert(tx, id, j)
	}
	ids := func(tx *store.Tx, index string, prefix []byte) []string {
		t.Helper()
		list, _, err := store.Jobs.List(tx, index, store.Page{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, j := range list {
			out = append(out, string(j.ID))
		}
		return out
	}
	expect := func(tx *store.Tx, what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	mustUpdate(t, db, func(tx *store.Tx) error {
		for _, err := range []error{
			add(tx, "job-3", "ingest", "file-1", 3), add(tx, "job-1", "ingest", "file-2", 1), add(tx, "job-2", "expire", "file-1", 2),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	mustUpdate(t, db, func(tx *store.Tx) error {
		expect(tx, "due", ids(tx, store.ByDue, store.Key("ingest", "")), "job-1", "job-3")
		expect(tx, "running", ids(tx, store.ByRunning, nil))
		_, err := store.Jobs.Update(tx, "job-1", func(j *resource.Job) error { return j.To(resource.JobRunning, day(4)) })
		return err
	})
	mustView(t, db, func(tx *store.Tx) error {
		expect(tx, "due", ids(tx, store.ByDue, store.Key("ingest", "")), "job-3")
		expect(tx, "running", ids(tx, store.ByRunning, store.Key("ingest")), "job-1")
		expect(tx, "subject", ids(tx, store.BySubject, store.Key("file-1", "")), "job-2", "job-3")
		return nil
	})
}

// TestFiles keeps a file with everything in it, and lists it in its project.
func TestFiles(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	want := &resource.File{
		ID: "file-1", ProjectID: "proj-1", Name: "a.jsonl", Purpose: resource.PurposeFineTune, Type: resource.FileJSONL, Size: 1 << 40,
		SHA256: "ab", ObjectKey: "files/file-1", Status: resource.FileInvalid, CreatedAt: day(1), UpdatedAt: day(2), ExpiresAt: new(day(3)),
		Parts:  []resource.FilePart{{Number: 1, Size: 2, SHA256: "cd", ObjectKey: "uploads/u/1"}},
		Report: &resource.FileReport{Lines: 3, Errors: 1, Problems: []resource.FileProblem{{Line: 2, Reason: "the line is empty"}}},
	}
	mustUpdate(t, db, func(tx *store.Tx) error { return store.Files.Insert(tx, "file-1", want) })
	mustView(t, db, func(tx *store.Tx) error {
		list, _, err := store.Files.List(tx, store.ByProject, store.Page{Prefix: store.Key("proj-1", "")})
		if err != nil || len(list) != 1 {
			t.Fatalf("got %d files, %v", len(list), err)
		}
		if got := list[0]; got.Report.Problems[0].String() != "Line 2: the line is empty" || !got.ExpiresAt.Equal(day(3)) || got.Parts[0] != want.Parts[0] || !got.Here() {
			t.Errorf("got %+v", got)
		}
		return nil
	})
}
