package citations

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublicTypes: no exported declaration of a public package names a type of an internal one. go doc
// and pkg.go.dev don't show what such a type has, so a reader can't use it.
func TestPublicTypes(t *testing.T) {
	packages := 0
	for _, top := range []string{"replock", "store", "locking"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "internal" {
				return fs.SkipDir
			}
			packages++
			return publicTypes(t, dir)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if packages < 15 {
		t.Errorf("only %d packages were read", packages)
	}
}

// publicTypes reports the internal types that a package's documentation names.
func publicTypes(t *testing.T, dir string) error {
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	var files []*ast.File
	hidden := make(map[string]bool) // names of internal packages
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, f)
		for _, i := range f.Imports {
			if at := strings.Trim(i.Path.Value, `"`); strings.Contains(at, "/internal/") {
				hidden[at[strings.LastIndex(at, "/")+1:]] = true
			}
		}
	}
	shown, err := doc.NewFromFiles(set, files, dir)
	if err != nil {
		return err
	}
	check := func(in string, n ast.Node) {
		var visit func(ast.Node) bool
		visit = func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && v.Type != nil { // which is the type, whatever the value
				ast.Inspect(v.Type, visit)
				return false
			}
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && hidden[x.Name] {
				t.Errorf("%s: %s names %s.%s, which is internal: declare it here", set.Position(s.Pos()), in, x.Name, s.Sel.Name)
			}
			return true
		}
		ast.Inspect(n, visit)
	}
	for _, f := range shown.Funcs {
		check(f.Name, f.Decl.Type)
	}
	for _, v := range append(shown.Vars, shown.Consts...) {
		check(strings.Join(v.Names, ", "), v.Decl)
	}
	for _, typ := range shown.Types {
		check(typ.Name, typ.Decl)
		for _, f := range append(typ.Funcs, typ.Methods...) {
			check(typ.Name+"."+f.Name, f.Decl.Type)
		}
	}
	return nil
}
