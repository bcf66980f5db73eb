package app_test

import (
	"encoding/json"
	"os/exec"
	"path"
	"strings"
	"testing"
)

// module is the path of this module.
const module = "athanor"

// allowed is the import graph: a package may import of this module only what
// the first matching line says. "x/..." is x and everything below it. Test
// files may import more and are not checked.
var allowed = []struct {
	pkg     string
	imports []string
}{
	{"", []string{"server/app", "server/config", "server/cli"}},
	{"server/api", nil},
	{"server/kit", nil},
	{"server/config", nil},
	{"server/rest", []string{"server/api", "server/kit"}},
	{"server/jobs", []string{"server/kit", "store", "store/resource"}},
	{"server/files/dataset", []string{"engine/parquet"}},
	{"server/cli", []string{"server/app", "server/config", "server/api", "server/files/dataset", "engine", "engine/demo", "engine/train/data"}},
	{"server/hub", []string{"server/egress"}},
	{"server/egress", nil},
	{"server/finetunes/tracker", []string{"server/egress"}},
	{"server/finetunes/snapshot", nil},
	{"server/finetunes", []string{"server/finetunes/...", "server/jobs", "server/api", "server/rest", "server/kit", "store", "store/resource", "store/object", "engine"}},
	{"server/app", []string{"server/...", "store/...", "engine", "engine/demo", "engine/export", "engine/host", "engine/ort", "engine/peft", "engine/train/...", "engine/worker", "engine/llm", "gpu/...", "web"}},
	{"server/servertest", []string{"server/...", "store/...", "engine", "engine/enginetest"}},
	{"server/files", []string{"server/files/dataset", "server/jobs", "server/api", "server/rest", "server/kit", "store", "store/resource", "store/object"}},
	{"server/*", []string{"server/jobs", "server/api", "server/rest", "server/kit", "store", "store/resource", "store/object", "engine"}}, // a slice
	{"store/resource", nil},
	{"store/object", nil},
	{"store/object/objecttest", []string{"store/object"}},
	{"store/storetest", []string{"store/..."}},
	{"store", []string{"store/resource"}},
	{"engine", nil},
	{"engine/demo", nil},
	{"engine/tensor", nil},
	{"engine/onnx", []string{"engine/tensor"}},
	{"engine/compute", []string{"engine/onnx", "engine/tensor"}},
	{"engine/compute/computetest", []string{"engine/compute", "engine/onnx", "engine/tensor"}},
	{"engine/graph", []string{"engine/onnx", "engine/tensor"}},
	{"engine/durable", nil},
	{"engine/weights", []string{"engine/durable", "engine/onnx", "engine/tensor"}},
	{"engine/nn", []string{"engine/graph", "engine/onnx", "engine/tensor", "engine/weights"}},
	{"engine/family/...", []string{"engine/family/...", "engine/nn", "engine/graph", "engine/weights", "engine/onnx", "engine/tensor"}},
	{"engine/ort/...", []string{"engine/ort/...", "engine/compute", "engine/onnx", "engine/tensor"}},
	{"engine/refexec", []string{"engine/compute", "engine/onnx", "engine/tensor"}},
	{"engine/token/...", []string{"engine/token/..."}},
	{"engine/prompt/...", []string{"engine/prompt/..."}},
	{"engine/sample", nil},
	{"engine/kv", nil},
	{"engine/sched", nil},
	{"engine/grad", []string{"engine/graph", "engine/onnx", "engine/tensor"}},
	{"engine/grad/gradcheck", []string{"engine/grad", "engine/graph", "engine/compute", "engine/onnx", "engine/tensor"}},
	{"engine/peft", []string{"engine/durable", "engine/weights", "engine/onnx", "engine/tensor"}},
	{"engine/export", []string{"engine", "engine/durable", "engine/peft", "engine/llm", "engine/family/...", "engine/weights", "engine/compute", "engine/token", "engine/prompt", "engine/onnx", "engine/tensor"}},
	{"engine/parquet", nil},
	{"engine/train/data", []string{"engine", "engine/durable", "engine/parquet", "engine/token", "engine/prompt"}},
	{"engine/train/...", []string{"engine", "engine/durable", "engine/train/...", "engine/export", "engine/peft", "engine/family/...", "engine/token", "engine/prompt", "engine/graph", "engine/grad/...", "engine/refexec", "engine/nn", "engine/weights", "engine/compute", "engine/onnx", "engine/tensor"}},
	{"engine/llm", []string{"engine", "engine/durable", "engine/peft", "engine/sched", "engine/sample", "engine/token", "engine/prompt", "engine/kv", "engine/family", "engine/graph", "engine/weights", "engine/compute", "engine/onnx", "engine/tensor"}},
	{"engine/worker", []string{"engine"}},
	{"engine/host", []string{"engine", "engine/worker", "gpu"}},
	{"engine/enginetest", []string{"engine/..."}},
	{"gpu", nil},
	{"gpu/nvml", []string{"gpu"}},
	{"web", nil},
	{"scripts/...", []string{"engine/...", "server/...", "store/...", "gpu/..."}},
}

// onlyImporter names the one package that may import a library, so that its
// types cannot spread.
var onlyImporter = map[string]string{
	"go.etcd.io/bbolt":                "store",
	"github.com/gofiber/fiber":        "server/rest",
	"github.com/valyala/fasthttp":     "server/rest",
	"github.com/yalue/onnxruntime_go": "engine/ort",
	"github.com/NVIDIA/go-nvml":       "gpu/nvml",
	"github.com/minio/minio-go":       "store/object",
	"github.com/prometheus":           "server/app",
	"github.com/spf13/cobra":          "server/cli",
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImportRules(t *testing.T) {
	packages := listPackages(t)
	if len(packages) < 20 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	for _, p := range packages {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		rule, found := ruleFor(name)
		if !found {
			t.Errorf("package %s has no line in the import rules", name)
			continue
		}
		for _, imp := range p.Imports {
			if inner, ok := strings.CutPrefix(imp, module+"/"); ok && !matchAny(rule, inner) {
				t.Errorf("%s must not import %s", name, inner)
			}
			for library, owner := range onlyImporter {
				if strings.HasPrefix(imp, library) && name != owner {
					t.Errorf("%s must not import %s: only %s may", name, imp, owner)
				}
			}
		}
	}
}

func TestImportRulesCanFail(t *testing.T) {
	rule, _ := ruleFor("server/chat")
	if matchAny(rule, "server/models") || matchAny(rule, "engine/llm") || !matchAny(rule, "engine") {
		t.Error("the rule of a slice does not hold")
	}
	if rule, _ := ruleFor("engine/llm"); matchAny(rule, "store") || matchAny(rule, "server/kit") {
		t.Error("the engine may reach the server")
	}
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func ruleFor(name string) ([]string, bool) {
	for _, r := range allowed {
		if match(r.pkg, name) {
			return r.imports, true
		}
	}
	return nil, false
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if match(p, name) {
			return true
		}
	}
	return false
}

// match understands "x", "x/..." and, for one segment, "x/*".
func match(pattern, name string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == root || strings.HasPrefix(name, root+"/")
	}
	ok, _ := path.Match(pattern, name)
	return ok
}
