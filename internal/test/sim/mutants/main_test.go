package main

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../../.."

// TestMutantsFit: each mutant's file has the text that it replaces, once, and compiles with the
// text that it puts in its place. A change of the text in the engine changes list.go.
func TestMutantsFit(t *testing.T) {
	c := newCompiler(t)
	for _, m := range mutants {
		text, err := m.mutate(root)
		if err == nil {
			err = c.compile(m.file, text)
		}
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// TestNamesAreOfMutants: about and tested have the names of mutants.
func TestNamesAreOfMutants(t *testing.T) {
	check := func(name string) {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }) {
			t.Errorf("there is no mutant %q", name)
		}
	}
	for name := range about {
		check(name)
	}
	for name := range tested {
		check(name)
	}
}

// compiler reports the errors that the Go compiler would, without the time that it takes to
// generate code.
type compiler struct {
	files  *token.FileSet
	config types.Config
	parsed map[string]*ast.File
}

func newCompiler(t *testing.T) *compiler {
	compiled := exports(t)
	files := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	return &compiler{files, types.Config{Importer: importer.ForCompiler(files, "gc", open)}, map[string]*ast.File{}}
}

// exports returns the compiled packages that the mutants' packages import, by import path.
func exports(t *testing.T) map[string]string {
	cmd := exec.Command("go", "list", "-export", "-deps", "-buildvcs=false", "-f={{.ImportPath}} {{.Export}}")
	for _, m := range mutants {
		cmd.Args = append(cmd.Args, "./"+filepath.Dir(m.file))
	}
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.Bytes())
	}
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[path] = file
	}
	return compiled
}

// compile checks the package of a file that has another text.
func (c *compiler) compile(name string, text []byte) error {
	dir := filepath.Join(root, filepath.Dir(name))
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, base := range pkg.GoFiles {
		f, err := c.parse(filepath.Join(dir, base))
		if base == filepath.Base(name) {
			f, err = parser.ParseFile(c.files, name, text, parser.SkipObjectResolution)
		}
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	_, err = c.config.Check(dir, c.files, files, nil)
	return err
}

// parse parses each file once.
func (c *compiler) parse(name string) (*ast.File, error) {
	if f, ok := c.parsed[name]; ok {
		return f, nil
	}
	f, err := parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution)
	c.parsed[name] = f
	return f, err
}
