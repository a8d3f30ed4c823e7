// Package citations tests that comments and documents cite only what exists: files, sections,
// tests, mutants, runs of the model, decisions and steps of the protocol.
package citations

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

var (
	testName = regexp.MustCompile(`\bTest[A-Z]\w*`)
	decision = regexp.MustCompile(`(?i)\bdecision (\d+)`)
	document = regexp.MustCompile(`[\w./-]*\b[\w-]+\.md\b`)
	inTree   = regexp.MustCompile(`(^|[^\w./:@-])((?:\.ci|cmd|docs|e2e|examples|internal|locking|packaging|replock|spec|store|tools)/[\w./-]*\w)`)
	link     = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	run      = regexp.MustCompile(`\bspec/run\.sh ([a-z][a-z-]+)`)
)

// TestCitations: every name that a comment or a document cites exists.
func TestCitations(t *testing.T) {
	tree := readTree(t)
	for _, f := range tree.files {
		for _, cited := range f.cited {
			for _, name := range testName.FindAllString(cited.text, -1) {
				assert.That(t, tree.tests[name], "%s:%d: there is no test %s", f.path, cited.line, name)
			}
			for _, m := range run.FindAllStringSubmatch(cited.text, -1) {
				assert.That(t, tree.runs[m[1]] != "", "%s:%d: spec/run.sh has no %s", f.path, cited.line, m[1])
			}
			for _, m := range decision.FindAllStringSubmatch(cited.text, -1) {
				found, _ := filepath.Glob(fmt.Sprintf("%s/docs/evidence/decisions/%04s-*.md", root, m[1]))
				assert.That(t, len(found) == 1, "%s:%d: there is no decision %s", f.path, cited.line, m[1])
			}
			for _, name := range paths(cited.text) {
				assert.That(t, tree.has(path.Dir(f.path), name), "%s:%d: there is no %s", f.path, cited.line, name)
			}
		}
	}
}

// paths are the files and folders of the tree that a text names.
func paths(text string) (names []string) {
	for _, name := range document.FindAllString(text, -1) {
		name = strings.TrimPrefix(name, "/usr/share/doc/repolock/") // its path in the packages
		if !strings.Contains(name, "//") {
			names = append(names, name)
		}
	}
	for _, m := range inTree.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[2]+"/", "/bin/") { // which is built
			names = append(names, m[2])
		}
	}
	return names
}

// TestLinks: a link of a document leads to a file of the tree, and to a section that it has.
func TestLinks(t *testing.T) {
	tree := readTree(t)
	for _, f := range tree.files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		for _, cited := range f.cited {
			for _, m := range link.FindAllStringSubmatch(cited.text, -1) {
				if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
					continue
				}
				name, anchor, _ := strings.Cut(m[1], "#")
				to := f.path
				if name != "" {
					to = path.Join(path.Dir(f.path), name)
				}
				if !tree.exists(to) {
					t.Errorf("%s:%d: the link to %s leads nowhere", f.path, cited.line, m[1])
				} else if anchor != "" && !slices.Contains(sections(t, to), anchor) {
					t.Errorf("%s:%d: %s has no section #%s", f.path, cited.line, to, anchor)
				}
			}
		}
	}
}

// TestIndex: docs/README.md leads to every page below docs/.
func TestIndex(t *testing.T) {
	led := map[string]bool{}
	for _, m := range link.FindAllStringSubmatch(read(t, root+"/docs/README.md"), -1) {
		led[path.Join("docs", m[1])] = true
	}
	pages := 0
	for _, f := range readTree(t).files {
		if path.Ext(f.path) != ".md" || !strings.HasPrefix(f.path, "docs/") || f.path == "docs/README.md" {
			continue
		}
		pages++
		assert.That(t, led[f.path], "docs/README.md has no link to %s", f.path)
	}
	assert.That(t, pages >= 30, "only %d pages are found", pages)
}

// TestWalks: each step of the walks in docs/evidence/architecture.md is a function of the file that it names.
func TestWalks(t *testing.T) {
	steps := regexp.MustCompile("(?m)^\\| `([a-zA-Z]+)` \\| `([\\w/.]+\\.go)` \\|").FindAllStringSubmatch(read(t, root+"/docs/evidence/architecture.md"), -1)
	assert.That(t, len(steps) >= 40, "only %d steps were found", len(steps))
	for _, step := range steps {
		assert.That(t, declares(read(t, filepath.Join(root, step[2])), step[1]), "%s has no function %s", step[2], step[1])
	}
}

// declares reports whether a text has a function or method of this name.
func declares(text, name string) bool {
	return regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[(\[]`).MatchString(text)
}

// TestSteps: each heading of the specification in code font names a function of replock.
func TestSteps(t *testing.T) {
	code := ""
	files, err := filepath.Glob(root + "/replock/*.go")
	assert.OK(t, err)
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			code += read(t, name)
		}
	}
	steps := regexp.MustCompile("(?m)^##+ `(\\w+)`$").FindAllStringSubmatch(read(t, root+"/docs/evidence/protocol.md"), -1)
	assert.That(t, len(steps) >= 10, "docs/evidence/protocol.md has only the steps %q", steps)
	for _, m := range steps {
		assert.That(t, declares(code, m[1]), "replock has no function %s", m[1])
	}
}

// TestRules: the rules of the specification name mutants and runs of the model that exist, and
// each mutant of the engine and each run guards a rule or shows a limit.
func TestRules(t *testing.T) {
	tree := readTree(t)
	spec := read(t, root+"/docs/evidence/protocol.md")
	cited := map[string]bool{}
	rules := table(spec, "rule", "tests", "mutants", "model runs", "#")
	for n, row := range rules {
		assert.Equal(t, row[4], strconv.Itoa(n+1), "the number of the rule "+row[0])
		for _, name := range strings.Split(row[2], "; ") {
			assert.That(t, name == "" || tree.mutants[name], "there is no mutant %q", name)
			cited[name] = true
		}
		for _, name := range quoted(row[3]) {
			assert.That(t, tree.runs[name] != "", "there is no run %q of the model", name)
			cited[name] = true
		}
		assert.That(t, testName.FindString(row[1]) != "", "no test guards the rule %q", row[0])
	}
	assert.That(t, len(rules) >= 30, "only %d rules are found", len(rules))
	for name := range tree.mutants {
		assert.That(t, cited[name], "the mutant %q guards no rule of docs/evidence/protocol.md", name)
	}
	text := spec + read(t, root+"/docs/evidence/holes.md")
	for name := range tree.runs {
		assert.That(t, strings.Contains(text, "`"+name+"`"), "the run %q of the model guards no rule of docs/evidence/protocol.md", name)
	}
}

// TestResults: the tables of docs/evidence/testing.md have all runs of the model with their verdicts.
func TestResults(t *testing.T) {
	tree := readTree(t)
	text := read(t, root+"/docs/evidence/testing.md")
	rows := map[string]string{}
	for _, row := range table(text, "variant", "verdict") {
		for _, name := range quoted(row[0]) {
			rows[name] = row[1]
		}
	}
	for name, want := range tree.runs {
		assert.That(t, rows[name] == want, "docs/evidence/testing.md says that %s is %q; spec/run.sh, %q", name, rows[name], want)
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("docs/evidence/testing.md has a run %s that doesn't exist", name)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	assert.OK(t, err)
	return string(raw)
}

// root is the top of the repository.
const root = "../../.."

// tree is the part of the repository that is cited or cites.
type tree struct {
	files   []file
	tests   map[string]bool
	mutants map[string]bool
	runs    map[string]string // of the model: safe or unsafe
}

// file is a file with the lines that can cite: in Go the comments, elsewhere every line.
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

var whole tree

// readTree reads the tree, once for all tests.
func readTree(t *testing.T) tree {
	t.Helper()
	if whole.files != nil {
		return whole
	}
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
	assert.OK(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\t\{"([^"]+)", \w+,`).FindAllStringSubmatch(read(t, root+"/internal/test/mutants/engine.go"), -1) {
		r.mutants[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^check (\S+) (safe|unsafe) `).FindAllStringSubmatch(read(t, root+"/spec/run.sh"), -1) {
		r.runs[m[1]] = m[2]
	}
	found := []int{len(r.tests), len(r.mutants), len(r.runs)}
	assert.Need(t, slices.Min(found) >= 30, "only these numbers of tests, mutants and runs are found: %v", found)
	whole = r
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

func lines(text string, from int) (ls []line) {
	for i, l := range strings.Split(text, "\n") {
		ls = append(ls, line{l, from + i})
	}
	return ls
}

// has reports whether a text in a folder that names a path can mean a file or folder: one from
// the root, from the folder, from docs or from docs/evidence. A name after a package's name and a dot is of the
// package.
func (r *tree) has(from, name string) bool {
	names := []string{name, path.Join(from, name), path.Join("docs", name), path.Join("docs/evidence", name)}
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
func sections(t *testing.T, name string) (anchors []string) {
	t.Helper()
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(read(t, filepath.Join(root, name)), ""), -1) {
		anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return anchors
}

// table returns these columns of all tables of a document that have them.
func table(text string, columns ...string) (rows [][]string) {
	var at []int // of the columns in the present table
	for _, l := range strings.Split(text, "\n") {
		cells := strings.Split(strings.Trim(l, "|"), "|")
		for i, c := range cells {
			cells[i] = strings.TrimSpace(c)
		}
		switch {
		case !strings.HasPrefix(l, "|"):
			at = nil
		case at == nil:
			at = []int{}
			for _, c := range columns {
				at = append(at, slices.Index(cells, c))
			}
		case slices.Min(at) >= 0 && strings.Trim(l, "|-: ") != "":
			var row []string
			for _, i := range at {
				row = append(row, cells[i])
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// quoted are the code spans of a text.
func quoted(text string) (names []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}
