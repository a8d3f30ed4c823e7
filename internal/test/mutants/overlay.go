package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutate returns the file with the bug in it, and where in the original text the change begins and ends.
func (m mutant) mutate(root string) (text string, from, to int, err error) {
	raw, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", 0, 0, err
	}
	text = string(raw)
	if n := strings.Count(text, m.old); n != 1 {
		return "", 0, 0, fmt.Errorf("%s has %d times what is to be replaced: %q", m.file, n, m.old)
	}
	before, after := 0, 0 // what old and new have in common
	for before < min(len(m.old), len(m.new)) && m.old[before] == m.new[before] {
		before++
	}
	for after < min(len(m.old), len(m.new))-before && m.old[len(m.old)-1-after] == m.new[len(m.new)-1-after] {
		after++
	}
	at := strings.Index(text, m.old)
	return strings.Replace(text, m.old, m.new, 1), at + before, at + len(m.old) - after, nil
}

// edit replaces text[from:to].
type edit struct {
	from, to int
	text     string
}

func apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(b.from, a.from) }) // from the end
	for _, e := range edits {
		text = text[:e.from] + e.text + text[e.to:]
	}
	return text
}

// switched returns a file's text with a copy of a function for each of its mutants, and the numbers
// of those mutants that aren't within a function.
func switched(root, file string, mutants map[int]mutant, numbers []int) (string, []int, error) {
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", nil, err
	}
	text := string(raw)
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	var (
		alone  []int
		edits  []edit
		copies strings.Builder
		named  = map[*ast.FuncDecl]string{} // the arguments of its calls
	)
	for _, n := range numbers {
		mutated, from, to, err := mutants[n].mutate(root)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", mutants[n].name, err)
		}
		i := slices.IndexFunc(parsed.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && f.Name.Name != "init" && f.Body != nil && at(f.Body.Lbrace) < from && to < at(f.End())
		})
		if i < 0 {
			alone = append(alone, n)
			continue
		}
		f := parsed.Decls[i].(*ast.FuncDecl)
		name := fmt.Sprintf("%s_mutant%d", f.Name.Name, n)
		copies.WriteString("\n" + mutated[at(f.Pos()):at(f.Name.Pos())] + name + mutated[at(f.Name.End()):at(f.End())+len(mutated)-len(text)] + "\n")
		if _, ok := named[f]; !ok {
			var e []edit
			named[f], e = parameters(f, at)
			edits = append(edits, e...)
		}
		call := fmt.Sprintf(" if mutantOn == %d { return %s };", n, callOf(f, name, named[f]))
		if f.Type.Results == nil {
			call = fmt.Sprintf(" if mutantOn == %d { %s; return };", n, callOf(f, name, named[f]))
		}
		edits = append(edits, edit{at(f.Body.Lbrace) + 1, at(f.Body.Lbrace) + 1, call})
	}
	return apply(text, edits) + copies.String(), alone, nil
}

// parameters names all parameters of a function, and returns them as the arguments of a call.
func parameters(f *ast.FuncDecl, at func(token.Pos) int) (args string, edits []edit) {
	var list []string
	field := func(p *ast.Field) {
		if len(p.Names) == 0 {
			name := fmt.Sprintf("mutantP%d", len(list))
			edits = append(edits, edit{at(p.Type.Pos()), at(p.Type.Pos()), name + " "})
			list = append(list, name)
		}
		for _, id := range p.Names {
			name := id.Name
			if name == "_" {
				name = fmt.Sprintf("mutantP%d", len(list))
				edits = append(edits, edit{at(id.Pos()), at(id.End()), name})
			}
			list = append(list, name)
		}
		if _, variadic := p.Type.(*ast.Ellipsis); variadic {
			list[len(list)-1] += "..."
		}
	}
	if f.Recv != nil {
		field(f.Recv.List[0])
	}
	for _, p := range f.Type.Params.List {
		field(p)
	}
	return strings.Join(list, ", "), edits
}

// callOf is the call of a function's copy.
func callOf(f *ast.FuncDecl, name, args string) string {
	if f.Recv != nil {
		recv, rest, _ := strings.Cut(args, ", ")
		return recv + "." + name + "(" + rest + ")"
	}
	if f.Type.TypeParams != nil {
		var types []string
		for _, p := range f.Type.TypeParams.List {
			for _, id := range p.Names {
				types = append(types, id.Name)
			}
		}
		name += "[" + strings.Join(types, ", ") + "]"
	}
	return name + "(" + args + ")"
}

// overlays writes the files of go build -overlay, and returns the name of each mutant's file. All mutants
// within functions share one.
func overlays(root, dir string, mutants map[int]mutant) (map[int]string, error) {
	byFile := map[string][]int{}
	for n, m := range mutants {
		byFile[m.file] = append(byFile[m.file], n)
	}
	common := overlay{root: root, name: filepath.Join(dir, "functions"), Replace: map[string]string{}}
	of := map[int]string{}
	for file, numbers := range byFile {
		slices.Sort(numbers)
		text, alone, err := switched(root, file, mutants, numbers)
		if err != nil {
			return nil, err
		}
		if err := common.put(file, text); err != nil {
			return nil, err
		}
		if err := common.put(path.Join(path.Dir(file), "mutant_on.go"), fmt.Sprintf(readsNumber, packageName(text))); err != nil {
			return nil, err
		}
		for _, n := range numbers {
			of[n] = common.name
		}
		for _, n := range alone {
			lone := overlay{root: root, name: filepath.Join(dir, fmt.Sprint(n)), Replace: map[string]string{}}
			text, _, _, err := mutants[n].mutate(root)
			if err == nil {
				err = lone.put(file, text)
			}
			if err == nil {
				err = lone.write()
			}
			if err != nil {
				return nil, err
			}
			of[n] = lone.name
		}
	}
	return of, common.write()
}

// overlay is what go build -overlay reads.
type overlay struct {
	root, name string            // of the tree; of the file, and of the texts beside it
	Replace    map[string]string // the original's path: the path of the text in its place
}

func (o overlay) put(file, text string) error {
	original, err := filepath.Abs(filepath.Join(o.root, file))
	if err != nil {
		return err
	}
	o.Replace[original] = o.name + "-" + strings.ReplaceAll(file, "/", "-")
	return os.WriteFile(o.Replace[original], []byte(text), 0o600)
}

func (o overlay) write() error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(o.name, raw, 0o600)
}

func packageName(text string) string {
	parsed, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly)
	if err != nil {
		return ""
	}
	return parsed.Name.Name
}

// readsNumber is the file of each package with mutants that knows which of them runs.
const readsNumber = `package %s

import (
	"os"
	"strconv"
)

var mutantOn = func() int {
	n, _ := strconv.Atoi(os.Getenv("MUTANT_ON"))
	return n
}()
`
