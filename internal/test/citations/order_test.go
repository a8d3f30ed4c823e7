package citations

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// declaration is a function, a method, a type, a constant or a variable at the top of a file.
type declaration struct {
	dir, file string // replock, acquire
	lines     int
	uses      []types.Object // other declarations of the engine
}

// engine are the declarations of replock, and of the two packages below that only replock uses.
type engine map[types.Object]*declaration

// readEngine type-checks the engine from its source.
func readEngine(t *testing.T) engine {
	t.Helper()
	set := token.NewFileSet()
	// Only the engine's own packages are known, which is enough to resolve its own names, and takes no time.
	known := imports{}
	config := &types.Config{Importer: known, Error: func(error) {}}
	e, info := engine{}, &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	nodes := map[*declaration]ast.Node{}
	for _, dir := range []string{"replock/internal/wire", "replock/internal/verdict", "replock"} {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		assert.OK(t, err)
		var files []*ast.File
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
				assert.OK(t, err)
				files = append(files, f)
			}
		}
		path := "github.com/repolock/repolock/" + dir
		known[path], _ = config.Check(path, set, files, info)
		for _, f := range files {
			for node, names := range declarations(f) {
				first, last := set.Position(node.Pos()), set.Position(node.End())
				d := &declaration{dir: dir, file: strings.TrimSuffix(filepath.Base(first.Filename), ".go"), lines: last.Line - first.Line + 1}
				nodes[d] = node
				for _, name := range names {
					e[info.Defs[name]] = d
				}
			}
		}
	}
	for d, node := range nodes {
		ast.Inspect(node, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				if o := origin(info.Uses[name]); e[o] != nil && e[o] != d {
					d.uses = append(d.uses, o)
				}
			}
			return true
		})
	}
	return e
}

// origin returns the declared function or field of an instance of a generic one.
func origin(o types.Object) types.Object {
	if f, ok := o.(*types.Func); ok {
		return f.Origin()
	}
	return o
}

// imports are the packages that can be imported.
type imports map[string]*types.Package

// Import implements types.Importer.
func (i imports) Import(path string) (*types.Package, error) {
	if p := i[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("not of the engine")
}

// declarations returns the declarations of a file, with the names that each declares.
func declarations(f *ast.File) map[ast.Node][]*ast.Ident {
	found := map[ast.Node][]*ast.Ident{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found[d] = []*ast.Ident{d.Name}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					found[s] = []*ast.Ident{s.Name}
				case *ast.ValueSpec:
					found[s] = s.Names
				}
			}
		}
	}
	return found
}

// TestReadingOrder: docs/evidence/architecture.md lists the files of replock in an order in which each file uses only
// files that come after it.
func TestReadingOrder(t *testing.T) {
	var order []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)\\.go` \\|").FindAllStringSubmatch(read(t, root+"/docs/evidence/architecture.md"), -1) {
		order = append(order, m[1])
	}
	e := readEngine(t)
	for o, d := range e {
		assert.That(t, d.dir != "replock" || slices.Contains(order, d.file), "docs/evidence/architecture.md doesn't list %s.go", d.file)
		for _, used := range d.uses {
			to := e[used]
			up := d.dir == "replock" && to.dir == "replock" && slices.Index(order, to.file) < slices.Index(order, d.file)
			assert.That(t, !up, "%s in %s.go uses %s, which comes before it, in %s.go", o.Name(), d.file, used.Name(), to.file)
		}
	}
	assert.That(t, len(order) >= 20 && len(e) >= 300, "only %d files and %d declarations were found", len(order), len(e))
}

// TestLinesUntilHeld: docs/evidence/architecture.md says how many lines acquire reaches until a lock is held, to a
// hundred, and how many of them have the argument why two can't hold.
func TestLinesUntilHeld(t *testing.T) {
	e := readEngine(t)
	lines, seen := 0, map[*declaration]bool{}
	var reach func(d *declaration)
	reach = func(d *declaration) {
		if seen[d] {
			return
		}
		seen[d] = true
		lines += d.lines
		for _, used := range d.uses {
			if used.Name() != "hold" || e[used].file != "hold" {
				reach(e[used])
			}
		}
	}
	for o, d := range e {
		if d.file == "acquire" && o.Name() == "acquire" {
			reach(d)
		}
	}
	said := "`acquire` reaches ([\\d,]+) lines until the lock is held\\. ([\\d,]+) of them"
	page := strings.Join(strings.Fields(read(t, root+"/docs/evidence/architecture.md")), " ")
	m := regexp.MustCompile(said).FindStringSubmatch(page)
	assert.Need(t, m != nil, "docs/evidence/architecture.md doesn't say how many lines acquire reaches")
	near := func(what, said string, is int) {
		n, err := strconv.Atoi(strings.ReplaceAll(said, ",", ""))
		assert.That(t, err == nil && n-is < 100 && is-n < 100, "docs/evidence/architecture.md says %s %s: %d", said, what, is)
	}
	near("lines until the lock is held", m[1], lines)
	near("lines of the argument", m[2], strings.Count(read(t, root+"/replock/enter.go"), "\n"))
}
