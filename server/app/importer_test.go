package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/app"
	"athanor/server/config"
	"athanor/store"
)

// imported imports a folder over the admin socket. It returns 0 for success,
// else the status of the answer (200 when progress had been shown before) and
// the error body.
func (p *process) imported(t testing.TB, path, name, quantization string) (status int, body []byte) {
	t.Helper()
	status, body, err := p.tryImport(t.Context(), path, name, quantization)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

func (p *process) tryImport(ctx context.Context, path, name, quantization string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg := config.Default()
	cfg.Data = p.Data
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return app.DialAdmin(ctx, cfg) }}
	defer transport.CloseIdleConnections()
	data, err := json.Marshal(map[string]string{"path": path, "name": name, "quantization": quantization})
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://admin/v1/admin/models/import", bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer local")
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp.StatusCode, text, err
	}
	for line := range bytes.Lines(text) {
		switch data, _ := bytes.CutPrefix(line, []byte("data: ")); {
		case bytes.HasPrefix(data, []byte(`{"error":`)):
			return resp.StatusCode, bytes.TrimSpace(data), nil
		case bytes.HasPrefix(data, []byte("[DONE]")):
			return 0, nil, nil
		}
	}
	return resp.StatusCode, text, errors.New("the import ended without a word")
}

// TestBadModels imports every bad folder while a good stream runs, and looks
// after each whether anything was left behind.
func TestBadModels(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	p.mustAnswer(t)
	before := p.kept(t)
	good, stop := p.goodStreams(t)
	for _, m := range append(badWeights(), badFolders()...) {
		t.Run(m.name, func(t *testing.T) {
			dir := demoFolder(t)
			m.spoil(t, dir)
			began := time.Now()
			status, body := p.imported(t, dir, "bad/model", "none")
			if status == 0 {
				t.Fatal("it was imported")
			}
			m.want.check(t, status, body)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			p.keptIs(t, before)
		})
	}
	stop()
	<-good
	p.mustAnswer(t)
	if status, text := get(t, p.Base+"/metrics", ""); status != http.StatusOK || strings.Contains(text, "bad/model") {
		t.Errorf("metrics after failed imports: %d, bad/model in them: %t", status, strings.Contains(text, "bad/model"))
	}
	if status, body := p.imported(t, demoFolder(t), "bad/model", "int8"); status != 0 {
		t.Errorf("a good model under the name of the bad ones: %d %s", status, body)
	}
	p.stop(t)
	checkStore(t, p.Data)
}

// TestBadImportRequests has requests that are wrong before any file is read.
func TestBadImportRequests(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	before := p.kept(t)
	dir := demoFolder(t)
	bad := func(param, message string) answer { return invalid(param, message) }
	for _, c := range []struct {
		name, path, model, quantization string
		want                            answer
	}{
		{"a path that is a file", filepath.Join(dir, "config.json"), "a/b", "none", bad("path", "is not a directory that the server can read")},
		{"a path that is not there", "/nowhere/at/all", "a/b", "none", bad("path", "is not a directory that the server can read")},
		{"a relative path", "models", "a/b", "none", bad("path", "path must be absolute")},
		{"a path with NUL", "/a\x00b", "a/b", "none", bad("path", "is not a directory that the server can read")},
		{"no name", dir, "", "none", bad("name", "name is required")},
		{"a name with dots", dir, "../../etc", "none", bad("name", "invalid name")},
		{"a name with a space", dir, "a b", "none", bad("name", "invalid name")},
		{"a name of 1 MB", dir, strings.Repeat("a", 1<<20), "none", bad("name", "invalid name")},
		{"a name that is taken", dir, app.DemoModel, "none", answer{409, "conflict", "name", "", "a model named " + app.DemoModel + " exists already"}},
		{"another quantization", dir, "a/b", "int3", bad("quantization", `must be none, int8 or int4, got "int3"`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := p.imported(t, c.path, c.model, c.quantization)
			c.want.check(t, status, body)
			p.keptIs(t, before)
		})
	}
	status, body := post(t, p.Base+"/v1/admin/models/import", p.Key, `{"path":"`+dir+`","name":"a/b","quantization":"none"}`)
	answer{404, "invalid_request_error", "", "unknown_url", "unknown request URL"}.check(t, status, []byte(body))
}

// kept lists what imports may leave: models by name, and files.
func (p *process) kept(t testing.TB) []string {
	t.Helper()
	list, err := p.tryKept(t)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (p *process) tryKept(t testing.TB) (list []string, err error) {
	status, body := get(t, p.Base+"/v1/models", p.Key)
	var models []struct{ ID string }
	if err := json.Unmarshal([]byte(body), &models); err != nil || status != http.StatusOK {
		t.Fatalf("models: %d %s", status, body)
	}
	for _, m := range models {
		list = append(list, "model "+m.ID)
	}
	for _, top := range []string{"objects", "cache"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(p.Data, top), func(path string, _ fs.DirEntry, err error) error {
			list = append(list, strings.TrimPrefix(path, p.Data))
			return err
		}))
	}
	slices.Sort(list)
	return list, err
}

// keptIs compares what is there with what was.
func (p *process) keptIs(t testing.TB, before []string) {
	t.Helper()
	var more, less []string
	for _, x := range p.kept(t) {
		if !slices.Contains(before, x) {
			more = append(more, x)
		}
	}
	now := p.kept(t)
	for _, x := range before {
		if !slices.Contains(now, x) {
			less = append(less, x)
		}
	}
	if len(more)+len(less) > 0 {
		t.Errorf("left behind: %v; lost: %v", more, less)
	}
}

// checkStore verifies the database of a stopped server.
func checkStore(t testing.TB, data string) {
	t.Helper()
	cfg := config.Default()
	cfg.Data = data
	db, err := store.Open(cfg.Database(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx *store.Tx) error { return store.Check(tx) })
	if err = errors.Join(err, db.Close()); err != nil {
		t.Errorf("check the database: %v", err)
	}
}

// TestEndlessTemplate has a model whose template would render for ever.
func TestEndlessTemplate(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	dir := demoFolder(t)
	write(t, dir, "chat_template.jinja", strings.Repeat("{% for x in range(99999) %}", 6)+"a"+strings.Repeat("{% endfor %}", 6))
	if status, body := p.imported(t, dir, "endless", "none"); status != 0 {
		t.Fatalf("import: %d %s", status, body)
	}
	worker := p.worker(t)
	began := time.Now()
	r := badRequest{body: strings.Replace(chat(""), app.DemoModel, "endless", 1),
		want: answer{400, "invalid_request_error", "messages", "chat_template_error", "more than"}}
	status, body := r.send(t, p)
	r.want.check(t, status, body)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if status, body := post(t, p.Base+completions, p.Key, strings.Replace(shortAnswer, app.DemoModel, "endless", 1)); status != http.StatusOK {
		t.Errorf("the next request: %d %s", status, body)
	}
	if !alive(worker) {
		t.Error("the worker did not survive")
	}
}

// TestImportsAtOnce imports one folder under one name and under another at the
// same time: each name is taken once and both models work.
func TestImportsAtOnce(t *testing.T) {
	t.Parallel()
	p := openReal(t)
	dir := demoFolder(t)
	editConfig(t, dir, map[string]any{"comment": "once"})
	var wg sync.WaitGroup
	var mu sync.Mutex
	results := map[string][]int{}
	for _, name := range []string{"one", "one", "two"} {
		wg.Go(func() {
			status, body, err := p.tryImport(t.Context(), dir, name, "none")
			if err != nil {
				t.Error(err)
			} else if status != 0 {
				answer{status, "conflict", "name", "", "a model named one exists already"}.check(t, status, body)
			}
			mu.Lock()
			defer mu.Unlock()
			results[name] = append(results[name], status)
		})
	}
	wg.Wait()
	if n := len(slices.DeleteFunc(results["one"], func(s int) bool { return s != 0 })); n != 1 || results["two"][0] != 0 {
		t.Errorf("results %v, want each name to be taken once", results)
	}
	for _, name := range []string{"one", "two"} {
		if status, body := post(t, p.Base+completions, p.Key, strings.Replace(shortAnswer, app.DemoModel, name, 1)); status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestKilledImports kills the server at random instants of an import. After the
// next start the model is there and works, or nothing of it is.
func TestKilledImports(t *testing.T) {
	if testing.Short() {
		t.Skip("ten starts of the server take a while")
	}
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := openReal(t)
	key, took := p.Key, time.Duration(0)
	outcomes := map[bool]int{}
	for round := range 11 {
		dir, name := demoFolder(t), fmt.Sprintf("round-%d", round)
		editConfig(t, dir, map[string]any{"comment": name})
		editWeights(t, dir, func(_ map[string]*tensorEntry, data []byte) { data[round] ^= 1 })
		before := p.kept(t)
		began := time.Now()
		if round == 0 { // how long an import takes
			if status, body := p.imported(t, dir, name, "int8"); status != 0 {
				t.Fatalf("import: %d %s", status, body)
			}
			took = time.Since(began)
			continue
		}
		timer := time.AfterFunc(time.Duration(rng.Int64N(int64(took)*5/4)), func() { _ = p.Cmd.Process.Kill() })
		status, body, err := p.tryImport(t.Context(), dir, name, "int8")
		if err == nil && status != 0 {
			t.Fatalf("import: %d %s", status, body)
		}
		<-p.done
		timer.Stop()
		p = serve(t, p.Data, nil, "--onnxruntime", library(t))
		p.Key = key
		listed := slices.Contains(p.kept(t), "model "+name)
		outcomes[listed]++
		if !listed {
			p.keptIs(t, before)
			if status, body := p.imported(t, dir, name, "int8"); status != 0 {
				t.Fatalf("import again: %d %s", status, body)
			}
		}
		if status, body := post(t, p.Base+completions, p.Key, strings.Replace(shortAnswer, app.DemoModel, name, 1)); status != http.StatusOK {
			t.Errorf("%s, listed after the kill: %t: %d %s", name, listed, status, body)
		}
		if err == nil && !listed {
			t.Errorf("%s was reported as imported and is gone", name)
		}
	}
	t.Logf("an import takes %s; there after the kill: %d, no trace: %d", took, outcomes[true], outcomes[false])
	p.stop(t)
	checkStore(t, p.Data)
}
