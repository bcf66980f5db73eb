package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"athanor/server/api"
)

// trainingData makes lines of conversations.
func trainingData(lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"Question %d of many?"},{"role":"assistant","content":"%s"}]}`+"\n", i, strings.Repeat("word ", 40))
	}
	return b.String()
}

// sendFile uploads content by multipart; ok is false when no answer came.
func sendFile(base, key, purpose, content string) (f api.File, ok bool, err error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	err = form.WriteField("purpose", purpose)
	if err == nil {
		var part io.Writer
		if part, err = form.CreateFormFile("file", "data.jsonl"); err == nil {
			_, err = io.WriteString(part, content)
		}
	}
	if err := errors.Join(err, form.Close()); err != nil {
		return f, false, err
	}
	req, err := http.NewRequest(http.MethodPost, base+"/v1/files", &body)
	if err != nil {
		return f, false, err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return f, false, nil // the server died
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(resp.Body)
		return f, false, fmt.Errorf("upload: %d %s", resp.StatusCode, data)
	}
	return f, json.NewDecoder(resp.Body).Decode(&f) == nil, nil
}

func fileOf(t testing.TB, base, key, id string) (f api.File) {
	t.Helper()
	status, body := get(t, base+"/v1/files/"+id, key)
	if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil {
		t.Fatalf("file %s: %d %s", id, status, body)
	}
	return f
}

// TestFilesThroughTheRunner uploads to an appliance with its real queue.
func TestFilesThroughTheRunner(t *testing.T) {
	t.Parallel()
	a := open(t)
	for content, want := range map[string]string{trainingData(10): "COMPLETED", `{"text":1}`: "INVALID_FORMAT"} {
		f, ok, err := sendFile(a.Base, a.Admin, "fine-tune", content)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		within(t, 10*time.Second, "the end of ingestion", func() bool { return fileOf(t, a.Base, a.Admin, f.ID).ValidationReport != nil })
		if got := fileOf(t, a.Base, a.Admin, f.ID); got.ProcessingStatus != want {
			t.Errorf("got %s, want %s: %+v", got.ProcessingStatus, want, got.ValidationReport)
		}
	}
}

// TestFilesSurviveKills kills the real server with -9 at random instants of an
// upload and its ingestion. What was acknowledged is validated in the end by the
// next process; of the rest no object stays.
func TestFilesSurviveKills(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("ATHANOR_KILLS") != "" {
		rounds = 20
	} else if testing.Short() {
		t.Skip("skipped by -short: starts servers")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	data, key := dataDir(t), ""
	const lines = 60000
	content := trainingData(lines)
	var acknowledged []string
	states := map[string]int{}
	for round := range rounds {
		p := serve(t, data, nil)
		if key == "" {
			key = p.Key
		}
		for _, id := range acknowledged {
			states[fileOf(t, p.Base, key, id).ProcessingStatus]++
		}
		// Every other time the server dies during the upload, or about its end, and
		// every other time during ingestion.
		killed, begin := make(chan struct{}), make(chan struct{})
		delay := time.Duration(random.Int64N(int64(400 * time.Millisecond)))
		if round%2 == 1 {
			delay /= 4
		} else {
			close(begin)
		}
		go func() {
			defer close(killed)
			<-begin
			<-time.After(delay)
			_ = p.Cmd.Process.Kill()
			<-p.done
		}()
		if f, ok, err := sendFile(p.Base, key, "fine-tune", content); err != nil {
			t.Error(err)
		} else if ok {
			acknowledged = append(acknowledged, f.ID)
		}
		if round%2 == 1 {
			close(begin)
		}
		<-killed
	}
	p := serve(t, data, nil)
	for _, id := range acknowledged {
		within(t, 60*time.Second, "the end of ingestion", func() bool { return fileOf(t, p.Base, key, id).ValidationReport != nil })
		if f := fileOf(t, p.Base, key, id); f.ProcessingStatus != "COMPLETED" || f.LineCount != lines || f.Bytes != int64(len(content)) {
			t.Errorf("%s: %+v", id, f)
		}
	}
	objects := filepath.Join(data, "objects", "files")
	count := func() (n int) {
		_ = filepath.WalkDir(objects, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				n++
			}
			return nil
		})
		return n
	}
	var list api.FileList
	within(t, 10*time.Second, "the objects that nobody needs to go", func() bool {
		_, body := get(t, p.Base+"/v1/files", key)
		return json.Unmarshal([]byte(body), &list) == nil && count() == len(list.Data)
	})
	t.Logf("%d kills, %d of the uploads acknowledged, %d files; states found after a kill: %v", rounds, len(acknowledged), len(list.Data), states)
}

// TestFileCommands runs the commands beside a server and without one.
func TestFileCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.jsonl", trainingData(3)), write("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":1}\n{\"text\":\"a\"}\n")
	table := write("table.csv", "a,b\n1,2\n")
	if out := must(t, "files", "check", good); !strings.Contains(out, "conversation") || !strings.Contains(out, "lines             3") {
		t.Errorf("check: %s", out)
	}
	out, errs, code := run(t, nil, "files", "check", bad)
	if code != 1 || !strings.Contains(out, "Line 2: `text` must be a string, not a number") || !strings.Contains(out, "exact duplicates  1") || !strings.Contains(errs, "is not a valid fine-tune file") {
		t.Errorf("check of a bad file: %d %s%s", code, out, errs)
	}
	must(t, "files", "check", table, "--purpose", "eval")
	mustFail(t, []string{"files", "check", table}, "CSV files are only for the purpose eval")
	mustFail(t, []string{"files", "check", filepath.Join(dir, "none.jsonl")}, "no such file")
	data := dataDir(t)
	if out := must(t, "files", "upload", good, "--data", data); !strings.Contains(out, "valid: 3 lines of the conversation format") {
		t.Errorf("upload without a server: %s", out)
	}
	p := serve(t, data, nil)
	if out, errs, code := run(t, nil, "files", "upload", bad, "--data", data); code != 1 || !strings.Contains(errs, "1 of 3 lines have errors") || !strings.Contains(out, "Line 2: ") {
		t.Errorf("upload of a bad file: %d %s%s", code, out, errs)
	}
	if out := must(t, "files", "upload", table, "--purpose", "eval", "--data", p.Data); !strings.Contains(out, "ready") {
		t.Errorf("upload of a table: %s", out)
	}
	out = must(t, "files", "list", "--data", data)
	for _, want := range []string{"good.jsonl", "bad.jsonl", "table.csv", "INVALID_FORMAT", "COMPLETED"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list does not have %s:\n%s", want, out)
		}
	}
}
