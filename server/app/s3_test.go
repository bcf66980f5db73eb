//go:build linux

package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/store/object"
	"athanor/store/object/objecttest"
)

// TestArtifactsInS3 runs the appliance on a real S3 server: the embedded model
// is stored there, and a model whose cache was deleted is fetched again.
func TestArtifactsInS3(t *testing.T) {
	s3 := objecttest.StartS3(t).Config(t, "athanor")
	data := dataDir(t)
	file := filepath.Join(data, "athanor.toml")
	settings := fmt.Sprintf("[s3]\nendpoint = %q\nbucket = %q\naccess-key = %q\nsecret-key = %q\ninsecure = true\n",
		s3.Endpoint, s3.Bucket, s3.AccessKey, s3.SecretKey)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *process {
		return serve(t, data, nil, "--config", file, "--onnxruntime", library(t))
	}
	p := start()
	key := p.Key
	ask := func(p *process) {
		t.Helper()
		status, body := post(t, p.Base+"/v1/completions", key, `{"model":"athanor/demo-3m","prompt":"Once","max_tokens":3,"temperature":0}`)
		if status != 200 || !strings.Contains(body, `"completion_tokens":3`) {
			t.Fatalf("got %d %s", status, body)
		}
	}
	ask(p)
	p.stop(t)

	objects, err := object.OpenS3(t.Context(), s3)
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	list, err := objects.List(t.Context(), "models/sha256/", "", 100)
	if err != nil || len(list) < 3 {
		t.Fatalf("%d objects of the model in the bucket, %v", len(list), err)
	}
	if left, err := os.ReadDir(filepath.Join(data, "objects")); err == nil && len(left) > 0 {
		t.Errorf("%d artifacts lie on the local disk too", len(left))
	}
	if err := os.RemoveAll(filepath.Join(data, "cache")); err != nil {
		t.Fatal(err)
	}
	ask(start())
}
