package ort_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTableMatchesHeader lets the C compiler compare our table of API entries
// with the header of the pinned onnxruntime_go: places must be equal and types
// must be assignable.
func TestTableMatchesHeader(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	api, err := os.ReadFile("api.h")
	if err != nil {
		t.Fatal(err)
	}
	entries := regexp.MustCompile(`X\((\d+), (\w+), (.*?), (\(.*\))\)`).FindAllStringSubmatch(string(api), -1)
	if len(entries) < 30 {
		t.Fatalf("found %d entries in api.h", len(entries))
	}
	var c strings.Builder
	c.WriteString("#include <stddef.h>\n#include \"onnxruntime_c_api.h\"\ntypedef unsigned OrtEnum;\n" +
		"typedef OrtLoggingFunction OrtLogFunction;\nextern const OrtApi *a;\nvoid check(void) {\n")
	for _, e := range entries {
		place, name, result, params := e[1], e[2], e[3], e[4]
		c.WriteString("_Static_assert(offsetof(OrtApi, " + name + ") == " + place + " * sizeof(void *), \"place of " + name + "\");\n")
		c.WriteString("{ " + result + " (*f)" + params + " = a->" + name + "; (void)f; }\n")
	}
	c.WriteString("}\n")
	file := filepath.Join(t.TempDir(), "check.c")
	if err := os.WriteFile(file, []byte(c.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gcc, "-std=c11", "-Werror", "-fsyntax-only", "-I", strings.TrimSpace(string(out)), file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
