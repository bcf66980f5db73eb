package snapshot_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"athanor/server/finetunes/snapshot"
)

// archive writes a snapshot and unpacks it.
func archive(t *testing.T, train string, eval io.Reader) ([]byte, map[string][]byte) {
	t.Helper()
	var out bytes.Buffer
	if err := snapshot.Write(&out, strings.NewReader(train), eval); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out.Bytes(), files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// lines makes n rows of different lengths.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		ids, mask, labels := []int{}, []int{}, []int{}
		for j := range i % 7 {
			ids, mask, labels = append(ids, i*1000+j), append(mask, 1), append(labels, -100+j)
		}
		data, _ := json.Marshal(map[string]any{"input_ids": ids, "attention_mask": mask, "labels": labels})
		b.Write(append(data, '\n'))
	}
	return b.String()
}

// TestArrow checks the rows with the Arrow library of another project.
func TestArrow(t *testing.T) {
	sdk, err := filepath.Abs("../../../scripts/sdk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(sdk, "node_modules", "apache-arrow")); err != nil {
		t.Skip("the Arrow library for Node is not installed: npm ci in scripts/sdk")
	}
	for _, n := range []int{0, 1, 8, 250} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			text := lines(n)
			_, files := archive(t, text, nil)
			cmd := exec.CommandContext(t.Context(), "node", "arrow.mjs")
			cmd.Dir, cmd.Stdin = sdk, bytes.NewReader(files["train_dataset/data-00000-of-00001.arrow"])
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got struct {
				Types    map[string]string
				Rows     []map[string][]int
				Metadata map[string]string
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			if want := map[string]string{"input_ids": "List<Int32>", "attention_mask": "List<Int8>", "labels": "List<Int64>"}; !reflect.DeepEqual(got.Types, want) {
				t.Errorf("the types are %v", got.Types)
			}
			want := []map[string][]int{}
			for _, line := range strings.Split(strings.TrimSpace(text), "\n")[:min(n, snapshot.MaxRows)] {
				var r map[string][]int
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				want = append(want, r)
			}
			if !reflect.DeepEqual(got.Rows, want) {
				t.Errorf("got %d rows, want %d: %.300v", len(got.Rows), len(want), got.Rows)
			}
			if !strings.Contains(got.Metadata["huggingface"], `"input_ids":{"_type":"Sequence"`) {
				t.Errorf("metadata %v", got.Metadata)
			}
		})
	}
}

func TestArchive(t *testing.T) {
	first, files := archive(t, lines(3), strings.NewReader(lines(2)))
	for _, folder := range []string{"train_dataset", "eval_dataset"} {
		var state struct {
			Files []struct{ Filename string } `json:"_data_files"`
		}
		var info struct {
			Features map[string]struct {
				Feature struct{ Dtype string }
				Type    string `json:"_type"`
			}
		}
		if err := json.Unmarshal(files[folder+"/state.json"], &state); err != nil || len(state.Files) != 1 {
			t.Fatalf("%s: state %v, %v", folder, state, err)
		}
		if err := json.Unmarshal(files[folder+"/dataset_info.json"], &info); err != nil || len(info.Features) != 3 || info.Features["labels"].Feature.Dtype != "int64" {
			t.Errorf("%s: info %v, %v", folder, info, err)
		}
		if data := files[folder+"/"+state.Files[0].Filename]; len(data) < 100 || len(data)%8 != 0 {
			t.Errorf("%s: %d bytes of rows", folder, len(data))
		}
	}
	if again, _ := archive(t, lines(3), strings.NewReader(lines(2))); !bytes.Equal(first, again) {
		t.Error("the same rows gave other bytes")
	}
	if _, files := archive(t, lines(3), nil); len(files) != 4 {
		t.Errorf("without evaluation there are %d entries", len(files))
	}
}

func TestBadRows(t *testing.T) {
	tests := []struct{ name, rows, want string }{
		{"not JSON", "{", "train_dataset: line 1"},
		{"lengths", lines(2) + `{"input_ids":[1,2],"attention_mask":[1],"labels":[1,2]}`, "line 3: 2 input_ids, 1 attention_mask"},
		{"too large for 32 bits", `{"input_ids":[2147483648],"attention_mask":[1],"labels":[1]}`, "input_ids has 2147483648"},
		{"too large for 8 bits", `{"input_ids":[1],"attention_mask":[128],"labels":[1]}`, "attention_mask has 128"},
		{"not a number", `{"input_ids":["a"],"attention_mask":[1],"labels":[1]}`, "line 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := snapshot.Write(io.Discard, strings.NewReader(tt.rows), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
