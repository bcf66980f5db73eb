package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"athanor/server/app"
)

// TestClients runs the public Node clients against the real server.
func TestClients(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("no node: %v", err)
	}
	dir := filepath.Join(root(t), "scripts", "sdk")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "openai")); err != nil {
		t.Skipf("no clients, scripts/test installs them: %v", err)
	}
	p := openReal(t)
	args := []string{"--test", "--test-reporter=tap", "sdk.test.mjs", "files.test.mjs"}
	if !testing.Short() {
		args = append(args, "finetunes.test.mjs") // trains
	}
	cmd := exec.CommandContext(t.Context(), node, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ATHANOR_BASE="+p.Base+"/v1", "ATHANOR_KEY="+p.Key, "ATHANOR_MODEL="+app.DemoModel)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n# fail 0\n") || strings.Contains(string(out), "\n# pass 0\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
