package files_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"athanor/server/api"
	"athanor/server/files"
)

type tokens struct {
	InputIDs []int32 `parquet:"input_ids,list"`
	Labels   []int32 `parquet:"labels,list"`
}

func tokenFile(t *testing.T, rows ...tokens) string {
	t.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, rows); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestParquet brings tokenized files in by every way of uploading.
func TestParquet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	good := tokenFile(t, tokens{[]int32{1, 2, 3}, []int32{-100, 2, 3}}, tokens{[]int32{4, 5}, []int32{4, 5}}, tokens{[]int32{4, 5}, []int32{4, 5}})
	var ids []string
	ids = append(ids, w.upload("a.parquet", "fine-tune", good).ID)

	resp, _ := w.send("POST", "/files?purpose=fine-tune&file_name=b&file_type=parquet", nil)
	if resp, body := w.send("PUT", resp.Header.Get("Location"), strings.NewReader(good)); resp.StatusCode != 200 {
		t.Fatalf("PUT: got %d %s", resp.StatusCode, body)
	}
	ids = append(ids, resp.Header.Get("X-Together-File-Id"))

	var u api.Upload
	w.call("POST", "/files/multipart/initiate", map[string]any{"purpose": "fine-tune", "file_name": "c.parquet", "file_size": len(good), "num_parts": 2}, &u)
	var done []map[string]any
	for n, part := range []string{good[:50], good[50:]} {
		if resp, body := w.send("PUT", u.Parts[n].URL, strings.NewReader(part)); resp.StatusCode != 200 {
			t.Fatalf("part: got %d %s", resp.StatusCode, body)
		}
		done = append(done, map[string]any{"part_number": n + 1, "etag": hash(part)})
	}
	var out api.CompletedUpload
	w.call("POST", "/files/multipart/complete", map[string]any{"upload_id": u.UploadID, "file_id": u.FileID, "parts": done}, &out)
	ids = append(ids, u.FileID)

	w.settle()
	for _, id := range ids {
		f := w.file(id)
		if r := f.ValidationReport; f.ProcessingStatus != "COMPLETED" || f.FileType != "parquet" || r == nil || !r.Valid || r.NLines != 3 || r.DatasetFormat != "tokenized" || r.DuplicateLines != 1 {
			t.Errorf("got %+v, report %+v", f, f.ValidationReport)
		}
	}
}

func TestBrokenParquet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{})
	good := tokens{[]int32{1, 2}, []int32{1, 2}}
	for content, want := range map[string]string{
		"no such file": "Line 1: the file is not a Parquet file: it does not begin with PAR1",
		tokenFile(t):   "Line 1: the file holds no samples",
		tokenFile(t, good, tokens{[]int32{1, 2}, []int32{1}}): "Line 2: `labels` must have as many values as `input_ids`, 2, not 1",
	} {
		f := w.upload("a.parquet", "fine-tune", content)
		w.settle()
		if got := w.file(f.ID); got.ProcessingStatus != "INVALID_FORMAT" || got.ValidationReport.Error != want {
			t.Errorf("got %s %+v, want %s", got.ProcessingStatus, got.ValidationReport, want)
		}
	}
}

// TestParquetLimits: Parquet has a limit of its own and one purpose.
func TestParquetLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, files.Limits{File: 100, Parquet: 300})
	for _, tt := range []struct {
		query string
		size  int64
		want  int
	}{
		{"file_name=a.jsonl", 100, 200}, {"file_name=a.jsonl", 101, http.StatusRequestEntityTooLarge},
		{"file_name=a.parquet", 300, 200}, {"file_name=a.parquet", 301, http.StatusRequestEntityTooLarge},
	} {
		resp, _ := w.send("POST", "/files?purpose=fine-tune&"+tt.query, nil)
		if resp, body := w.send("PUT", resp.Header.Get("Location"), &endless{left: tt.size}); resp.StatusCode != tt.want {
			t.Errorf("%s of %d bytes: got %d %s", tt.query, tt.size, resp.StatusCode, body)
		}
		form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" + strings.Repeat("x", int(tt.size)) + "\r\n--b--\r\n"
		resp, body := w.send("POST", "/files/upload?purpose=fine-tune&"+tt.query, strings.NewReader(form), "Content-Type", "multipart/form-data; boundary=b")
		if resp.StatusCode != tt.want {
			t.Errorf("%s of %d bytes in a form: got %d %s", tt.query, tt.size, resp.StatusCode, body)
		}
		_, name, _ := strings.Cut(tt.query, "=")
		initiate := fmt.Sprintf(`{"purpose":"fine-tune","num_parts":1,"file_size":%d,"file_name":%q}`, tt.size, name)
		if resp, body := w.send("POST", "/files/multipart/initiate", strings.NewReader(initiate), "Content-Type", "application/json"); (resp.StatusCode == 200) != (tt.want == 200) {
			t.Errorf("%s of %d bytes in parts: got %d %s", tt.query, tt.size, resp.StatusCode, body)
		}
	}
	for _, purpose := range []string{"eval", "batch-api"} {
		resp, body := w.send("POST", "/files?file_name=a.parquet&purpose="+purpose, nil)
		if want := "Parquet files are only for the purpose fine-tune, not for " + purpose; resp.StatusCode != 400 || !strings.Contains(body, want) || !strings.Contains(body, `"param":"file_type"`) {
			t.Errorf("%s: got %d %s", purpose, resp.StatusCode, body)
		}
	}
}
