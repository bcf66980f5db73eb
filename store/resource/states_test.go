package resource_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"athanor/store/resource"
)

var update = flag.Bool("update", false, "rewrite testdata/states.md")

// render draws a table of states.
func render[S ~string](out *strings.Builder, title string, moves map[S][]S) {
	fmt.Fprintf(out, "## %s\n\n```mermaid\nstateDiagram-v2\n", title)
	for _, from := range slices.Sorted(maps.Keys(moves)) {
		for _, to := range moves[from] {
			fmt.Fprintf(out, "    %s --> %s\n", from, to)
		}
		if len(moves[from]) == 0 {
			fmt.Fprintf(out, "    %s --> [*]\n", from)
		}
	}
	out.WriteString("```\n\n")
}

// TestStates keeps the drawing of all state machines true.
func TestStates(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	out.WriteString("# States of the records\n\nWritten by the tests of this package from the tables in the code.\n\n")
	render(&out, "File", resource.FileMoves)
	render(&out, "Fine-tune", resource.FineTuneMoves)
	render(&out, "Job", resource.JobMoves)
	const name = "testdata/states.md"
	if *update {
		if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || out.String() != string(want) {
		t.Errorf("%s is not what the tables say (%v); run with -update and read the difference", name, err)
	}
}

func TestMoves(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f := &resource.File{Status: resource.FilePending}
	var bad *resource.BadMove
	if err := f.To(resource.FileRunning, now); !errors.As(err, &bad) || err.Error() != "a file that is PENDING cannot become RUNNING" {
		t.Errorf("PENDING to RUNNING: %v", err)
	}
	for _, s := range []resource.FileStatus{resource.FileQueued, resource.FileRunning, resource.FileInvalid} {
		if err := f.To(s, now); err != nil || f.Status != s || !f.UpdatedAt.Equal(now) {
			t.Errorf("to %s: %v, %+v", s, err, f)
		}
	}
	if !f.Status.Final() || resource.FilePending.Final() {
		t.Error("the end of the way is not known")
	}
	for s, next := range resource.FileMoves {
		for _, n := range next {
			if _, known := resource.FileMoves[n]; !known {
				t.Errorf("%s leads to %s, which is no state", s, n)
			}
		}
	}
	j := &resource.Job{Status: resource.JobQueued}
	if err := j.To(resource.JobQueued, now); !errors.As(err, &bad) {
		t.Errorf("queued to queued: %v", err)
	}
	if err := j.To(resource.JobRunning, now); err != nil || !j.StartedAt.Equal(now) {
		t.Errorf("queued to running: %v", err)
	}
}

func TestUploadPut(t *testing.T) {
	t.Parallel()
	u := &resource.Upload{}
	for _, n := range []int{3, 1, 2} {
		if old := u.Put(resource.FilePart{Number: n, ObjectKey: fmt.Sprint("first ", n)}); old != nil {
			t.Errorf("part %d replaced %+v", n, old)
		}
	}
	if old := u.Put(resource.FilePart{Number: 2, ObjectKey: "second 2"}); old == nil || old.ObjectKey != "first 2" {
		t.Errorf("replaced %+v", old)
	}
	var got []string
	for _, p := range u.Parts {
		got = append(got, p.ObjectKey)
	}
	if want := []string{"first 1", "second 2", "first 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
