package citations

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the top of the repository.
const root = "../../.."

// tree is the part of the repository that is cited or cites.
type tree struct {
	files   []file
	tests   map[string]bool
	mutants map[string]bool
	runs    map[string]string // of the model: safe or unsafe
}

// file is a text with its parts that can cite: the comments of Go, every line of others.
type file struct {
	path  string // from the root
	cited []line
}

type line struct {
	text string
	line int
}

// texts are the kinds of files to read, apart from those without an extension.
var texts = []string{".go", ".md", ".pml", ".sh", ".yml", ".yaml", ".service", ".timer", ".env", ".txtar", ""}

func readTree(t *testing.T) tree {
	t.Helper()
	r := tree{tests: map[string]bool{}, mutants: map[string]bool{}, runs: map[string]string{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch at = filepath.ToSlash(at); {
		case d.IsDir():
			if strings.HasPrefix(path.Base(at), ".") && at != "." && at != ".ci" || at == "bin" || at == "dist" {
				return fs.SkipDir
			}
		case !d.Type().IsRegular(), at == "LICENSE", at == "NOTICES", !slices.Contains(texts, path.Ext(at)):
		case path.Ext(at) == ".go":
			return r.goFile(at)
		default:
			text := read(t, name)
			if !strings.Contains(text, "\x00") {
				r.files = append(r.files, file{at, lines(text, 1)})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t\{"([^"]+)", \w+,$`).FindAllStringSubmatch(read(t, root+"/internal/test/mutants/engine.go"), -1) {
		r.mutants[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^check (\S+) (safe|unsafe) `).FindAllStringSubmatch(read(t, root+"/spec/run.sh"), -1) {
		r.runs[m[1]] = m[2]
	}
	if len(r.tests) < 100 || len(r.mutants) < 30 || len(r.runs) < 30 {
		t.Fatalf("only %d tests, %d mutants and %d runs are found", len(r.tests), len(r.mutants), len(r.runs))
	}
	return r
}

var declared = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

func (r *tree) goFile(at string) error {
	raw, err := os.ReadFile(filepath.Join(root, at))
	if err != nil {
		return err
	}
	if strings.HasSuffix(at, "_test.go") {
		for _, m := range declared.FindAllStringSubmatch(string(raw), -1) {
			r.tests[m[1]] = true
		}
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, at, raw, parser.ParseComments)
	if err != nil {
		return err
	}
	f := file{path: at}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			f.cited = append(f.cited, lines(c.Text, set.Position(c.Pos()).Line)...)
		}
	}
	r.files = append(r.files, f)
	return nil
}

func lines(text string, from int) []line {
	var ls []line
	for i, l := range strings.Split(text, "\n") {
		ls = append(ls, line{l, from + i})
	}
	return ls
}

// has reports whether a text in a folder that names a path can mean a file or folder: one from
// the root, from the folder or from docs. A name after a package's name and a dot is of the
// package.
func (r *tree) has(from, name string) bool {
	names := []string{name, path.Join(from, name), path.Join("docs", name)}
	if path.Ext(name) != ".md" {
		names = append(names, strings.TrimSuffix(name, path.Ext(name)))
	}
	return slices.ContainsFunc(names, r.exists)
}

func (r *tree) exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// sections are the anchors of a document's headings, as GitHub names them.
func sections(t *testing.T, name string) []string {
	t.Helper()
	var anchors []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(read(t, filepath.Join(root, name)), ""), -1) {
		anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return anchors
}

// table returns these columns of all tables of a document that have them.
func table(text string, columns ...string) [][]string {
	var rows [][]string
	var at []int
	for _, l := range strings.Split(text, "\n") {
		if !strings.HasPrefix(l, "|") {
			at = nil
			continue
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(l, "|"), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		if at == nil {
			at = []int{}
			for _, c := range columns {
				if i := slices.Index(cells, c); i >= 0 {
					at = append(at, i)
				}
			}
			continue
		}
		if len(at) < len(columns) || strings.HasPrefix(l, "|--") || strings.Trim(l, "|-: ") == "" {
			continue
		}
		var row []string
		for _, i := range at {
			row = append(row, cells[i])
		}
		rows = append(rows, row)
	}
	return rows
}

// quoted are the code spans of a text.
func quoted(text string) []string {
	var names []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}
