// Command types checks the types of all packages and their tests on other systems: its arguments are GOOS/GOARCH. It
// runs in the root of the repository, and compiles nothing. Of the standard library and other modules it reads the
// declarations alone, so a system takes some seconds.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"github.com/repolock/repolock/internal/tool/golist"
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
	packages, err := golist.Packages[listed](root, system, "-deps", "-test", "-json=Dir,ImportPath,GoFiles,ImportMap,Module", "./...")
	if err != nil {
		return err
	}
	_, goarch, _ := strings.Cut(system, "/")
	c := checker{sizes: types.SizesFor("gc", goarch), files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range packages { // what a package imports comes before it
		if p.ImportPath != "unsafe" && !strings.HasSuffix(p.ImportPath, ".test") { // go test writes the main package of a test
			c.check(&p)
		}
	}
	return errors.Join(c.errs...)
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
