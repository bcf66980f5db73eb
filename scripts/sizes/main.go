package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxFile     = 800
	maxFunction = 120
)

func main() {
	var bad []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, ".go") {
			found, err := check(path)
			bad = append(bad, found...)
			return err
		}
		return nil
	})
	if err != nil {
		bad = append(bad, err.Error())
	}
	for _, line := range bad {
		fmt.Fprintln(os.Stderr, line)
	}
	if len(bad) > 0 {
		os.Exit(1)
	}
}

// check lists what is too long in one file.
func check(path string) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		return nil, err
	}
	var bad []string
	if n := fset.File(file.Pos()).LineCount(); n > maxFile {
		bad = append(bad, fmt.Sprintf("%s: %d lines, the cap is %d", path, n, maxFile))
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > maxFunction {
			bad = append(bad, fmt.Sprintf("%s: %s has %d lines, the cap is %d", path, f.Name.Name, n, maxFunction))
		}
	}
	return bad, nil
}
