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

// TestKinds: each declared kind of event is in the table of kinds, so that the records can't
// lack a new one.
func TestKinds(t *testing.T) {
	all := append(declared(t, "event.go"), declared(t, filepath.Join("..", "..", "..", "replock", "event.go"))...)
	if !slices.Contains(all, replock.EventAcquired) || !slices.Contains(all, LockBroken) {
		t.Fatalf("the declared kinds are %q", all)
	}
	for _, k := range all {
		if _, ok := kinds[k]; !ok {
			t.Errorf("%s isn't in the table", k)
		}
	}
	if len(kinds) != len(all) {
		t.Errorf("the table has %d kinds, and %d are declared", len(kinds), len(all))
	}
}

// TestRecords: each kind has the records of the table: the audit log gets a line with its
// name, and the metrics count it.
func TestRecords(t *testing.T) {
	for name, k := range kinds {
		a, m := &Auditor{locks: map[string]lease{}}, &Metrics{values: map[string]float64{}, held: map[string]bool{"": true}}
		e := Event{Event: replock.Event{Kind: name, Holders: make([]replock.Info, 1)}}
		records := a.records(e)
		if (k.audit != "") != (len(records) == 1 && records[0].Event == k.audit) {
			t.Errorf("%s is recorded as %+v", name, records)
		}
		if changed := m.count(e); changed != (k.counter != "" || k.gauges) || k.counter != "" && m.values[k.counter] != 1 {
			t.Errorf("%s changes the metrics: %t, %v", name, changed, m.values)
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

// Each counter of the table is in the file.
func TestCounters(t *testing.T) {
	for name, k := range kinds {
		known := slices.ContainsFunc(families, func(f family) bool { return f.name == k.counter && f.kind == "counter" })
		if !known && k.counter != "" {
			t.Errorf("%s counts as %q, which the file doesn't have", name, k.counter)
		}
	}
}
