package hub

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"athanor/server/egress"
)

const (
	testToken  = "hf_very_secret"
	testCommit = "0123456789abcdef0123456789abcdef01234567"
)

// hubServer speaks the hub's protocol for one repository, "owner/model": large
// files (.safetensors) lie on a second host, to which it redirects.
type hubServer struct {
	t    *testing.T
	hub  *httptest.Server
	cdn  *httptest.Server
	mu   sync.Mutex // protects fields below
	file map[string]string
	// Faults.
	statuses []int    // answers to the next requests, before they are looked at
	retry    string   // Retry-After of them
	cuts     []int    // the next downloads end after so many bytes
	corrupt  int      // so many downloads have a wrong byte
	noRange  bool     // Range is ignored
	public   bool     // no token is needed
	listed   []string // more names for the list of files
	chunk    int      // > 0: large files go in parts of so many bytes
	full     bool     // large files are refused
	// What happened.
	ranges   []string
	conds    []string          // If-Range of the same requests
	stored   map[string]string // uploaded large content by SHA-256
	parts    map[string]string // by part URL
	verified []string
	created  map[string]any
	commit   []map[string]any
}

func newHubServer(t *testing.T, files map[string]string) *hubServer {
	s := &hubServer{t: t, file: files, stored: map[string]string{}, parts: map[string]string{}}
	s.hub = httptest.NewServer(http.HandlerFunc(s.serveHub))
	s.cdn = httptest.NewServer(http.HandlerFunc(s.serveCDN))
	t.Cleanup(s.hub.Close)
	t.Cleanup(s.cdn.Close)
	return s
}

// client makes a client whose waits are noted instead of waited for.
func (s *hubServer) client(keep func(string) bool, limits Limits) (*Client, *[]time.Duration) {
	gate, err := egress.New([]string{"127.0.0.1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	web := gate.Client(egress.Options{Purpose: "test"})
	s.t.Cleanup(web.CloseIdleConnections)
	c := New(Config{BaseURL: s.hub.URL + "/", HTTP: web, Keep: keep, Limits: limits})
	var waits []time.Duration
	c.wait = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return c, &waits
}

func (s *hubServer) fault(w http.ResponseWriter) bool {
	if len(s.statuses) == 0 {
		return false
	}
	status := s.statuses[0]
	s.statuses = s.statuses[1:]
	w.Header().Set("Retry-After", s.retry)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":"told off, %s"}`, testToken)
	return true
}

func (s *hubServer) serveHub(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault(w) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+testToken && !s.public {
		w.Header().Set("X-Error-Message", "Invalid username or password.")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch r.Method + " " + r.URL.EscapedPath() {
	case "GET /api/models/owner/model/revision/main", "GET /api/models/owner/model/revision/refs%2Fpr%2F1":
		s.info(w)
	case "GET /api/whoami-v2":
		io.WriteString(w, `{"name":"owner"}`)
	case "POST /api/repos/create":
		s.decode(r, &s.created)
		io.WriteString(w, `{"url":"x"}`)
	case "POST /api/models/owner/model/preupload/main":
		s.preupload(w, r)
	case "POST /owner/model.git/info/lfs/objects/batch":
		s.batch(w, r)
	case "POST /verify":
		s.note(r)
	case "POST /complete":
		s.complete(r)
	case "POST /api/models/owner/model/commit/main":
		s.takeCommit(w, r)
	default:
		name, found := strings.CutPrefix(r.URL.Path, "/owner/model/resolve/"+testCommit+"/")
		content, there := s.file[name]
		switch {
		case !found || !there:
			w.WriteHeader(http.StatusNotFound)
		case strings.HasSuffix(name, ".safetensors"):
			http.Redirect(w, r, s.cdn.URL+"/"+name, http.StatusFound)
		default:
			s.send(w, r, content)
		}
	}
}

func (s *hubServer) decode(r *http.Request, out any) {
	if err := json.NewDecoder(r.Body).Decode(out); err != nil {
		s.t.Errorf("%s: %v", r.URL.Path, err)
	}
}

func (s *hubServer) info(w http.ResponseWriter) {
	var siblings []map[string]any
	for name, content := range s.file {
		e := map[string]any{"rfilename": name, "size": len(content)}
		if strings.HasSuffix(name, ".safetensors") {
			e["lfs"] = map[string]any{"sha256": sha(content), "size": len(content), "pointerSize": 134}
		} else {
			h := sha1.New()
			fmt.Fprintf(h, "blob %d\x00%s", len(content), content)
			e["blobId"] = hex.EncodeToString(h.Sum(nil))
		}
		siblings = append(siblings, e)
	}
	for _, name := range s.listed {
		siblings = append(siblings, map[string]any{"rfilename": name, "size": 1})
	}
	if err := json.NewEncoder(w).Encode(map[string]any{"sha": testCommit, "siblings": siblings}); err != nil {
		s.t.Error(err)
	}
}

func sha(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// send answers a download with its faults.
func (s *hubServer) send(w http.ResponseWriter, r *http.Request, content string) {
	s.ranges = append(s.ranges, r.Header.Get("Range"))
	s.conds = append(s.conds, r.Header.Get("If-Range"))
	etag := strconv.Quote(sha(content))
	w.Header().Set("ETag", etag)
	from := 0
	if given := r.Header.Get("Range"); given != "" && !s.noRange {
		if cond := r.Header.Get("If-Range"); cond != "" && cond != etag {
			s.t.Errorf("If-Range is %s", cond)
		}
		if _, err := fmt.Sscanf(given, "bytes=%d-", &from); err != nil {
			s.t.Errorf("range %s", given)
		}
		if from >= len(content) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
	}
	rest := content[from:]
	w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	if s.corrupt > 0 && rest != "" {
		s.corrupt--
		rest = "\x00" + rest[1:]
	}
	if len(s.cuts) > 0 {
		cut := min(s.cuts[0], len(rest))
		s.cuts = s.cuts[1:]
		io.WriteString(w, rest[:cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler) // closes the connection
	}
	io.WriteString(w, rest)
}

func (s *hubServer) serveCDN(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := r.Header.Get("Authorization"); got != "" {
		s.t.Errorf("the token went to another host: %s", got)
	}
	if r.Method == http.MethodGet {
		s.send(w, r, s.file[strings.TrimPrefix(r.URL.Path, "/")])
		return
	}
	if s.fault(w) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	if s.chunk > 0 {
		s.parts[r.URL.Path] = string(body)
	} else {
		if r.Header.Get("X-Signed") != "yes" {
			s.t.Error("the header of the action is missing")
		}
		s.stored[sha(string(body))] = string(body)
	}
	w.Header().Set("ETag", `"`+sha(string(body))[:8]+`"`)
}

func (s *hubServer) preupload(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Files []struct {
			Path   string
			Sample []byte
			Size   int
		}
	}
	s.decode(r, &in)
	var out []map[string]any
	for _, f := range in.Files {
		if want := min(f.Size, 512); len(f.Sample) != want {
			s.t.Errorf("%s: sample of %d bytes", f.Path, len(f.Sample))
		}
		mode := "regular"
		if strings.HasSuffix(f.Path, ".safetensors") {
			mode = "lfs"
		}
		out = append(out, map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": f.Path == "ignored.txt"})
	}
	if err := json.NewEncoder(w).Encode(map[string]any{"files": out}); err != nil {
		s.t.Error(err)
	}
}

func (s *hubServer) batch(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Operation string
		Objects   []struct {
			OID  string
			Size int
		}
	}
	s.decode(r, &in)
	var out []map[string]any
	for _, o := range in.Objects {
		e := map[string]any{"oid": o.OID, "size": o.Size}
		if s.full {
			e["error"] = map[string]any{"code": 507, "message": "no room for you, " + testToken}
		}
		if _, have := s.stored[o.OID]; !have {
			up := map[string]any{"href": s.cdn.URL + "/put/" + o.OID, "header": map[string]any{"X-Signed": "yes"}}
			if s.chunk > 0 {
				header := map[string]any{"chunk_size": strconv.Itoa(s.chunk)}
				for n := 1; (n-1)*s.chunk < o.Size; n++ {
					header[fmt.Sprintf("%05d", n)] = fmt.Sprintf("%s/part/%s/%05d", s.cdn.URL, o.OID, n)
				}
				up = map[string]any{"href": s.hub.URL + "/complete", "header": header}
			}
			e["actions"] = map[string]any{"upload": up, "verify": map[string]any{"href": s.hub.URL + "/verify"}}
		}
		out = append(out, e)
	}
	if err := json.NewEncoder(w).Encode(map[string]any{"objects": out}); err != nil {
		s.t.Error(err)
	}
}

func (s *hubServer) note(r *http.Request) {
	var in struct{ OID string }
	s.decode(r, &in)
	s.verified = append(s.verified, in.OID)
}

func (s *hubServer) complete(r *http.Request) {
	var in struct {
		OID   string
		Parts []struct {
			PartNumber int
			ETag       string
		}
	}
	s.decode(r, &in)
	var all string
	for i, p := range in.Parts {
		body := s.parts[fmt.Sprintf("/part/%s/%05d", in.OID, p.PartNumber)]
		if p.PartNumber != i+1 || p.ETag != `"`+sha(body)[:8]+`"` {
			s.t.Errorf("part %d: %+v", i+1, p)
		}
		all += body
	}
	s.stored[sha(all)] = all
}

func (s *hubServer) takeCommit(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Content-Type"); got != "application/x-ndjson" {
		s.t.Errorf("content type %s", got)
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l map[string]any
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			s.t.Error(err)
		}
		s.commit = append(s.commit, l)
	}
	io.WriteString(w, `{"success":true,"commitOid":"`+testCommit+`"}`)
}

// pushed is the repository after the commit, as path -> content.
func (s *hubServer) pushed() map[string]string {
	out := map[string]string{}
	for _, l := range s.commit[1:] {
		v := l["value"].(map[string]any)
		name := v["path"].(string)
		switch l["key"] {
		case "file":
			data, err := base64.StdEncoding.DecodeString(v["content"].(string))
			if err != nil {
				s.t.Error(err)
			}
			out[name] = string(data)
		case "lfsFile":
			out[name] = s.stored[v["oid"].(string)]
		default:
			s.t.Errorf("line %v", l)
		}
	}
	return out
}

// noise is n bytes that do not repeat.
func noise(n int) string {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		b.WriteString(sha(strconv.Itoa(i)))
	}
	return b.String()[:n]
}
