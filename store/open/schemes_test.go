package open_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/store/open"
)

// TestSchemes: each example can be parsed and passes Check, and each backend has a contract
// test.
func TestSchemes(t *testing.T) {
	for _, s := range open.Schemes() {
		example := strings.ReplaceAll(strings.ToLower(s.Example), ":port", ":9000")
		if l, err := open.Parse(example); err != nil || l.Scheme != s.Name {
			t.Errorf("%s: %+v, %v", s.Example, l, err)
		}
		if err := open.Check(example); err != nil {
			t.Errorf("%s: %v", s.Example, err)
		}
		backend := s.Name
		if backend == "file" {
			backend = "dir"
		}
		if _, err := os.Stat(filepath.Join("..", backend, "contract_test.go")); err != nil || s.Help == "" {
			t.Errorf("%s: %q, %v", s.Name, s.Help, err)
		}
	}
}

// TestSchemesIsACopy: a program that changes what Schemes returns changes no scheme.
func TestSchemesIsACopy(t *testing.T) {
	name := open.Schemes()[0].Name
	open.Schemes()[0] = open.Scheme{}
	if open.Schemes()[0].Name != name {
		t.Error("it is changed")
	}
}

// TestPageHasTheSchemes: the table of docs/repositories.md has each scheme's example
// and variables, and no other scheme.
func TestPageHasTheSchemes(t *testing.T) {
	text, err := os.ReadFile("../../docs/repositories.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, end := strings.Cut(string(text), "\n## Directories\n")
	if !end {
		t.Fatal("there is no table of repositories")
	}
	var want []string
	for _, s := range open.Schemes() {
		want = append(want, s.Name)
		if !strings.Contains(table, "`"+s.Example+"`") {
			t.Errorf("%s isn't there", s.Example)
		}
		if variable, _, _ := strings.Cut(s.Environment, ","); s.Name != "s3" && !strings.Contains(table, variable) {
			t.Errorf("%s isn't there", variable)
		}
	}
	var got []string
	for _, m := range regexp.MustCompile("`([a-z0-9]+)://").FindAllStringSubmatch(table, -1) {
		if !slices.Contains(got, m[1]) {
			got = append(got, m[1])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("it has %q, and there are %q", got, want)
	}
}
