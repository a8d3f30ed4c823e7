// Command types checks the types of all packages and their tests on other systems: its arguments are GOOS/GOARCH. It
// runs in the root of the repository, and compiles nothing. Of the standard library and other modules it reads the
// declarations alone, so a system takes some seconds.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	var errs []error
	for _, system := range os.Args[1:] {
		if err := check(".", system); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", system, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// check returns the errors in the types of the module at root on one system.
func check(root, system string) error {
	goos, goarch, _ := strings.Cut(system, "/")
	list := exec.Command("go", "list", "-deps", "-test", "-json=Dir,ImportPath,GoFiles,ImportMap,Module", "./...")
	var stderr strings.Builder
	list.Dir, list.Stderr = root, &stderr
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	c := checker{sizes: types.SizesFor("gc", goarch), files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for decoder := json.NewDecoder(out); ; { // what a package imports comes before it
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			if err := list.Wait(); err != nil {
				c.errs = append(c.errs, fmt.Errorf("go list: %w: %s", err, &stderr))
			}
			return errors.Join(c.errs...)
		case err != nil:
			return errors.Join(err, list.Wait())
		case p.ImportPath != "unsafe" && !strings.HasSuffix(p.ImportPath, ".test"): // go test writes the main package of a test
			c.check(&p)
		}
	}
}

// listed is a package, or one of its variants for a test, as go list shows it.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string // paths in the files to those of variants
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

type checker struct {
	sizes types.Sizes
	files *token.FileSet
	done  map[string]*types.Package
	errs  []error
}

// check checks a package whose imports are checked.
func (c *checker) check(p *listed) {
	ours := p.Module != nil && p.Module.Main
	fail := func(err error) {
		if ours {
			c.errs = append(c.errs, err)
		}
	}
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			fail(err)
			continue
		}
		parsed = append(parsed, f)
	}
	config := types.Config{Sizes: c.sizes, IgnoreFuncBodies: !ours, Error: fail, Importer: imports{c, p}}
	if ours {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // "path [variant]"
	c.done[p.ImportPath], _ = config.Check(path, c.files, parsed, nil)
}

// imports finds what a package imports.
type imports struct {
	*checker
	of *listed
}

func (i imports) Import(path string) (*types.Package, error) {
	if variant, ok := i.of.ImportMap[path]; ok {
		path = variant
	}
	if p := i.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("go list hasn't shown %s", path)
}
