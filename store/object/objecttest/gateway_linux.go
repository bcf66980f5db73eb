package objecttest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"athanor/store/object"
)

const (
	gatewayEnv  = "ATHANOR_VERSITYGW" // path of the binary
	binEnv      = "ATHANOR_TEST_BIN"  // where scripts/get-versitygw puts it, if not bin/
	gatewayName = "versitygw"
	startLimit  = 10 * time.Second
)

// S3 is a running S3 server of a test.
type S3 struct {
	addr    string
	buckets string // a directory per bucket
	process *os.Process
	ended   chan struct{} // closed when the process has ended
	log     logBuffer
}

// The credentials of every S3.
const (
	AccessKey = "athanor-test"
	SecretKey = "athanor-test-secret"
)

// StartS3 starts a server on 127.0.0.1 that ends with the test, or skips the test,
// saying why, where there is no binary. The binary is looked for at
// $ATHANOR_VERSITYGW, on the path, in $ATHANOR_TEST_BIN and in bin/ of the
// repository.
func StartS3(t testing.TB) *S3 {
	t.Helper()
	binary := findGateway(t)
	s := &S3{buckets: t.TempDir()}
	// The port could be taken between our look and the server's start.
	for range 3 {
		s.addr = freeAddr(t)
		s.start(t, binary)
		if s.waitReady() {
			t.Cleanup(s.Stop)
			return s
		}
		s.Stop()
	}
	t.Fatalf("the S3 server does not start:\n%s", s.log.String())
	return nil
}

// Config makes a bucket and returns the settings for it.
func (s *S3) Config(t testing.TB, bucket string) object.S3Config {
	t.Helper()
	if err := os.Mkdir(filepath.Join(s.buckets, bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	return object.S3Config{Endpoint: s.addr, Bucket: bucket, AccessKey: AccessKey, SecretKey: SecretKey, Insecure: true}
}

// Files lists what the server keeps in a bucket, by path below it; its parts and
// other unfinished things are included.
func (s *S3) Files(t testing.TB, bucket string) (files []string) {
	t.Helper()
	root := filepath.Join(s.buckets, bucket)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(root, path)
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Stop kills the server and waits for its end; stopping twice is harmless.
func (s *S3) Stop() {
	_ = s.process.Kill() // an error means that it has ended
	<-s.ended
}

func findGateway(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(gatewayEnv); path != "" {
		return path
	}
	if path, err := exec.LookPath(gatewayName); err == nil {
		return path
	}
	bin := os.Getenv(binEnv)
	if bin == "" {
		bin = filepath.Join(repository(t), "bin")
	}
	path := filepath.Join(bin, gatewayName)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no S3 server to test against: set %s, or run scripts/get-versitygw", gatewayEnv)
	}
	return path
}

// repository returns the directory of go.mod above the test.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	return dir
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs the server. It keeps its metadata in files of its own, because not
// every temporary directory has extended attributes.
func (s *S3) start(t testing.TB, binary string) {
	t.Helper()
	cmd := exec.Command(binary, "--quiet", "--port", s.addr, "posix", "--sidecar", t.TempDir(), s.buckets)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	// A test binary that dies without cleaning up takes the server with it. The
	// signal comes when the starting thread ends, so that thread waits for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.ended)
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is always killed
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", binary, err)
	}
}

// waitReady waits until the server accepts connections; false if it has ended.
func (s *S3) waitReady() bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(startLimit)
	for {
		select {
		case <-s.ended:
			return false
		case <-limit:
			return false
		case <-tick.C:
			if c, err := net.Dial("tcp", s.addr); err == nil {
				return c.Close() == nil
			}
		}
	}
}

// logBuffer keeps the beginning of what the server prints.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() < 64<<10 {
		l.buf.Write(p)
	}
	return len(p), nil
}

// String returns what was printed.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
