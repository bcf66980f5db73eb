package dataset_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"athanor/server/files/dataset"
)

// FuzzJSONL compares what the parser accepts with the standard library, which
// must accept it too, and checks that the bookkeeping holds for any bytes.
func FuzzJSONL(f *testing.F) {
	for _, tt := range broken {
		if len(tt.data) < 1000 {
			f.Add([]byte(tt.data))
		}
	}
	f.Add([]byte(good + "\n" + pair))
	f.Add([]byte(`{"a":[1,-2.5e+3,true,false,null,"\u00e9\ud83d\ude00"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, purpose := range []string{dataset.FineTune, dataset.Eval, dataset.Batch} {
			r, err := dataset.Check(t.Context(), bytes.NewReader(data), dataset.Options{Purpose: purpose, Type: "jsonl"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Errors > max(r.Lines, 1) || int64(len(r.Problems)) > r.Errors || len(r.Problems) > 100 {
				t.Fatalf("%+v", r)
			}
			for _, p := range r.Problems {
				if !utf8.ValidString(p.String()) || strings.Contains(p.String(), "\n") {
					t.Fatalf("a reason is not one line of text: %q", p)
				}
			}
			if purpose != dataset.Eval {
				continue
			}
			bad := map[int64]bool{}
			for _, p := range r.Problems {
				bad[p.Line] = true
			}
			for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte{'\n'}), []byte{'\n'}) {
				if r.Errors <= 100 && !bad[int64(i+1)] && !json.Valid(line) {
					t.Fatalf("line %d is accepted and is not JSON: %q", i+1, line)
				}
			}
		}
	})
}

// FuzzCSV compares what is accepted with the standard library.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a\n\"x\ny\"\n", "a,b\n\"1\"\"\",\n", "a\n\"", "a,a\n", "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := dataset.Check(t.Context(), bytes.NewReader(data), dataset.Options{Purpose: dataset.Eval, Type: "csv"})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Valid() {
			return
		}
		all, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
		if err != nil || int64(len(all)) != r.Lines+1 {
			t.Fatalf("accepted %d records of %q, the standard library: %d, %v", r.Lines, data, len(all), err)
		}
	})
}
