package events

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/repolock/repolock/replock"
)

// Each kind of event is either in a record or left out of it by name: a new kind can't be
// forgotten.
func TestKinds(t *testing.T) {
	kinds := append(declared(t, "event.go"), declared(t, filepath.Join("..", "..", "replock", "event.go"))...)
	if !slices.Contains(kinds, replock.EventAcquired) || !slices.Contains(kinds, LockBroken) {
		t.Fatalf("the declared kinds are %q", kinds)
	}
	for _, kind := range kinds {
		if _, ok := audited[kind]; !ok {
			t.Errorf("%s isn't among the events of the audit log", kind)
		}
		if _, ok := measured[kind]; !ok {
			t.Errorf("%s isn't among the events of the metrics", kind)
		}
	}
	for name, n := range map[string]int{"audited": len(audited), "measured": len(measured)} {
		if n != len(kinds) {
			t.Errorf("%s has %d kinds, and %d are declared", name, n, len(kinds))
		}
	}
}

// declared returns the constants of type EventKind in a file.
func declared(t *testing.T, file string) (kinds []replock.EventKind) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typed, _ := spec.Type.(*ast.Ident)
		selected, _ := spec.Type.(*ast.SelectorExpr)
		if typed != nil && typed.Name == "EventKind" || selected != nil && selected.Sel.Name == "EventKind" {
			kind, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, replock.EventKind(kind))
		}
		return true
	})
	return kinds
}

// Each counter of an event is among the families.
func TestCounters(t *testing.T) {
	for kind, counter := range measured {
		known := slices.ContainsFunc(families, func(f family) bool { return f.name == counter && f.kind == "counter" })
		if !known && counter != "" && counter != unchanged {
			t.Errorf("%s counts as %q, which the file doesn't have", kind, counter)
		}
	}
}
