package app_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"athanor/server/app"
)

// TestLogHasNoSecrets checks the log at its most talkative, and those of the
// workers: no key, no prompt, no answer.
func TestLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	p := openReal(t, "--log-level", "debug")
	key := lastLine(must(t, "keys", "create", "--data", p.Data, "--name", "x"))
	const marker = "zebracrossing"
	chat := `{"model":"` + app.DemoModel + `","temperature":0,"max_tokens":24,"messages":[{"role":"user","content":"What is Athanor? ` + marker + `"}]`
	status, answer := post(t, p.Base+"/v1/chat/completions", key, chat+"}")
	if status != http.StatusOK {
		t.Fatalf("chat: %d %s", status, answer)
	}
	post(t, p.Base+"/v1/chat/completions", key, chat+`,"stream":true}`)
	post(t, p.Base+"/v1/chat/completions", key, chat+`,"temperature":"`+marker+`"}`)
	post(t, p.Base+"/v1/completions", key, `{"model":"`+marker+`","prompt":"`+marker+`"}`)
	post(t, p.Base+"/v1/completions?api_key="+key, key, `{"prompt":"`+marker)
	get(t, p.Base+"/v1/"+marker, key+"x")
	get(t, p.Base+"/v1/whoami?q="+marker, "ath_"+marker)
	content := between(answer, `"content":"`, `"`)
	if len(content) < 8 {
		t.Fatalf("the answer is too short to look for: %s", answer)
	}
	if code := p.stop(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	log := p.log.String() // with what the worker wrote
	for what, secret := range map[string]string{"the first key": p.Key, "a key": key, "a prompt": marker, "an answer": content, "part of a key": key[8:24]} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %s", what)
		}
	}
	if n := strings.Count(log, "msg=request"); n < 7 {
		t.Errorf("the log has %d requests, want all of them", n)
	}
}

// between is the text after from, up to the next to.
func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// TestDrain stops a server under a stream and a whole answer: with time they
// end as if nothing had happened, without it the stream ends with an error event.
func TestDrain(t *testing.T) {
	for _, tt := range []struct{ name, drain, stream, whole string }{
		{"time enough", "30s", "[DONE]", "200, retry after "},
		{"no time", "10ms", "shutting down", "503, retry after 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := openReal(t, "--drain", tt.drain)
			if status, body := post(t, p.Base+"/v1/completions", p.Key, shortAnswer); status != http.StatusOK {
				t.Fatalf("load the model: %d %s", status, body)
			}
			s := stream(t, http.DefaultClient, p.Base, p.Key, longAnswer)
			s.skip(t, 2)
			whole := make(chan string, 1)
			go func() {
				whole <- headOf(t.Context(), p, strings.Replace(longAnswer, `"stream":true`, `"stream":false`, 1))
			}()
			within(t, 10*time.Second, "two requests in the worker", func() bool {
				_, body := get(t, p.Base+"/metrics", "")
				return strings.Contains(body, `athanor_worker_inflight{model="`+app.DemoModel+`"} 2`)
			})
			if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if last := s.rest(t); !strings.Contains(last, tt.stream) {
				t.Errorf("the stream ends with %q, want %q", last, tt.stream)
			}
			if got := <-whole; got != tt.whole {
				t.Errorf("the whole answer: %s, want %s", got, tt.whole)
			}
			if code := p.stop(t); code != 0 {
				t.Errorf("exit status %d, want 0", code)
			}
			if _, err := net.Dial("tcp", p.Addr); err == nil {
				t.Error("somebody still listens")
			}
		})
	}
}

// rest reads to the end of the stream and returns its last event.
func (s *eventStream) rest(t *testing.T) (last string) {
	t.Helper()
	for {
		data, err := s.next()
		if err != nil {
			t.Fatalf("the stream has no proper end: %v", err)
		}
		if data == "" {
			return last
		}
		last = data
	}
}

// headOf asks for a completion and gives the status and the wait of the answer.
func headOf(ctx context.Context, p *process, body string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Base+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%d, retry after %s", resp.StatusCode, resp.Header.Get("Retry-After"))
}

// TestSettings checks that flags go over the environment, it over the file, and
// it over the defaults.
func TestSettings(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	data := filepath.Join(dir, "from-file")
	file := filepath.Join(dir, "athanor.toml")
	text := fmt.Sprintf("data = %q\nlisten = \"127.0.0.1:0\"\nlog-format = \"json\"\nlog-level = \"debug\"\ndrain = \"3s\"\n", data)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	isJSON := func(p *process) bool { return strings.HasPrefix(p.log.String(), "{") }

	p := start(t, nil, "--config", file)
	if _, err := os.Stat(filepath.Join(data, "athanor.db")); err != nil || !isJSON(p) || !strings.Contains(p.log.String(), `"DEBUG"`) {
		t.Errorf("the file does not count: %v\n%s", err, p.log)
	}
	p.stop(t)

	env := []string{"ATHANOR_CONFIG=" + file, "ATHANOR_LOG_FORMAT=text", "ATHANOR_LOG_LEVEL=info", "ATHANOR_DATA=" + filepath.Join(dir, "from-env")}
	p = start(t, env)
	if _, err := os.Stat(filepath.Join(dir, "from-env", "athanor.db")); err != nil || isJSON(p) || strings.Contains(p.log.String(), "level=DEBUG") {
		t.Errorf("the environment does not count: %v\n%s", err, p.log)
	}
	p.stop(t)

	p = start(t, env, "--log-format", "json", "--data", filepath.Join(dir, "from-flag"))
	if _, err := os.Stat(filepath.Join(dir, "from-flag", "athanor.db")); err != nil || !isJSON(p) {
		t.Errorf("the flags do not count: %v\n%s", err, p.log)
	}

	if err := os.WriteFile(file, []byte("listen = \"127.0.0.1:0\"\nkeepalive = \"1m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFail(t, []string{"serve", "--config", file}, "unknown keys", "keepalive")
	mustFail(t, []string{"serve", "--config", filepath.Join(dir, "none.toml")}, "none.toml")
	if _, errs, code := run(t, []string{"ATHANOR_THREADS=many"}, "serve", "--data", data); code != 1 || !strings.Contains(errs, "ATHANOR_THREADS") {
		t.Errorf("a bad variable: exit %d, %s", code, errs)
	}
}

// TestNoLibrary checks that a server without ONNX Runtime starts, manages, and
// says honestly that it is not ready and why.
func TestNoLibrary(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), nil, "--onnxruntime", t.TempDir())
	if status, body := get(t, p.Base+"/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "not ready") {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, body := get(t, p.Base+"/healthz", ""); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, body := get(t, p.Base+"/v1/models", p.Key); status != http.StatusOK || !strings.Contains(body, app.DemoModel) {
		t.Errorf("models: %d %s", status, body)
	}
	status, body := post(t, p.Base+"/v1/completions", p.Key, `{"model":"`+app.DemoModel+`","prompt":"x"}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "overloaded_error") {
		t.Errorf("completions: %d %s", status, body)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots := writeCertificate(t, cert, key)
	client := func(roots *x509.CertPool) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	}
	p := serve(t, filepath.Join(dir, "d"), nil, "--tls-cert", cert, "--tls-key", key)
	probe := func(c *http.Client) error {
		resp, err := c.Get(p.Base + "/healthz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("healthz: %s", resp.Status)
		}
		return nil
	}
	if !strings.HasPrefix(p.Base, "https://") {
		t.Fatalf("the server does not say that it speaks TLS: %s", p.log)
	}
	if err := probe(client(roots)); err != nil {
		t.Error(err)
	}
	if err := probe(client(nil)); err == nil {
		t.Error("a certificate that nobody vouches for was taken")
	}
	if resp, err := http.Get("http://" + p.Addr + "/healthz"); err == nil {
		resp.Body.Close()
		t.Errorf("plain HTTP gets %s", resp.Status)
	}
	if got := must(t, "keys", "create", "--data", p.Data, "--name", "x"); !keyForm.MatchString(lastLine(got)) {
		t.Errorf("a key beside a server with TLS: %s", got)
	}
	// A renewed certificate counts at once.
	renewed := writeCertificate(t, cert, key)
	if err := os.Chtimes(cert, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := probe(client(renewed)); err != nil {
		t.Errorf("after a renewal: %v", err)
	}
	_, errs, code := run(t, nil, "serve", "--data", filepath.Join(dir, "e"), "--listen", "127.0.0.1:0", "--tls-cert", key, "--tls-key", cert)
	if code != 1 || !strings.Contains(lastLine(errs), "athanor: TLS certificate") {
		t.Errorf("with the files exchanged: exit %d, %s", code, errs)
	}
}

// writeCertificate writes a self-signed certificate for 127.0.0.1.
func writeCertificate(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "athanor"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}
