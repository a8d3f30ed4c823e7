package citations

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestPublicTypes: no exported declaration of a public package names a type of an internal one. go doc
// and pkg.go.dev don't show what such a type has, so a reader can't use it.
func TestPublicTypes(t *testing.T) {
	files := 0
	for _, top := range []string{"replock", "store", "locking"} {
		assert.OK(t, filepath.WalkDir(filepath.Join(root, top), func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "internal":
				return fs.SkipDir
			case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
				files++
				return publicTypes(t, name)
			}
			return nil
		}))
	}
	assert.That(t, files >= 100, "only %d files were read", files)
}

// publicTypes reports the internal types that the exported declarations of a file name.
func publicTypes(t *testing.T, name string) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, nil, 0)
	if err != nil {
		return err
	}
	hidden := map[string]bool{} // names of internal packages
	for _, i := range f.Imports {
		at, _ := strconv.Unquote(i.Path.Value)
		hidden[path.Base(at)] = hidden[path.Base(at)] || strings.Contains(at, "/internal/")
	}
	ast.FileExports(f)
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			return false
		case *ast.FuncDecl:
			if n.Recv != nil && !ast.IsExported(strings.TrimLeft(types.ExprString(n.Recv.List[0].Type), "*")) {
				return false
			}
		case *ast.ValueSpec:
			if n.Type != nil { // which is the type, whatever the value
				ast.Inspect(n.Type, visit)
				return false
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && hidden[x.Name] {
				t.Errorf("%s names %s.%s, which is internal: declare it here", set.Position(n.Pos()), x.Name, n.Sel.Name)
			}
		}
		return true
	}
	for _, d := range f.Decls {
		ast.Inspect(d, visit)
	}
	return nil
}
