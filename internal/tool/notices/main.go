// Command notices prints the licenses and notices of all that is linked into the program,
// on whatever system: NOTICES, which is in every package. It runs in the root of the
// repository.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/tool/golist"
)

// systems are the targets of the packages in .goreleaser.yaml.
var systems = []string{
	"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64",
	"freebsd/amd64", "freebsd/arm64", "windows/amd64", "windows/arm64",
}

func main() {
	text, err := generate(".")
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// generate returns the notices of the program in the repository at root.
func generate(root string) (string, error) {
	places := map[string][]string{}
	for _, system := range systems {
		if err := list(root, system, places); err != nil {
			return "", err
		}
	}
	return notices(places)
}

// list adds the directories of all packages that are linked for a system, by their module.
// The standard library's is Go.
func list(root, system string, places map[string][]string) error {
	type linked struct {
		Dir, Root string
		Standard  bool
		Module    *struct {
			Path, Dir string
			Main      bool
		}
	}
	packages, err := golist.Packages[linked](root, system, "-deps", "-json=Dir,Module,Standard,Root", "./cmd/repolock")
	for _, p := range packages {
		switch {
		case p.Standard:
			add(places, "Go", p.Root)
		case !p.Module.Main:
			for dir := p.Dir; ; dir = filepath.Dir(dir) { // vendored code has its license beside it
				add(places, p.Module.Path, dir)
				if dir == p.Module.Dir {
					break
				}
			}
		}
	}
	return err
}

func add(places map[string][]string, module, dir string) {
	if !slices.Contains(places[module], dir) {
		places[module] = append(places[module], dir)
	}
}

// legal are the names of the files that go along with a program.
var legal = regexp.MustCompile(`(?i)^(licen[cs]es?|notices?|copying|copyright|patents)([.-].*)?$`)

// notices returns what modules have in their directories, the same text once. A module
// without a license is an error.
func notices(places map[string][]string) (string, error) {
	owners := map[string][]string{} // of a text
	for _, module := range slices.Sorted(maps.Keys(places)) {
		licensed := false
		for _, dir := range places[module] {
			files, err := os.ReadDir(dir)
			if err != nil {
				return "", err
			}
			for _, f := range files {
				if !f.Type().IsRegular() || !legal.MatchString(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
					continue
				}
				raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
				if err != nil {
					return "", err
				}
				licensed = licensed || !regexp.MustCompile(`(?i)^(notice|patents)`).MatchString(f.Name())
				text := normal(string(raw))
				if !slices.Contains(owners[text], module) {
					owners[text] = append(owners[text], module)
				}
			}
		}
		if !licensed {
			return "", fmt.Errorf("%s: no license in %s", module, places[module])
		}
	}
	return join(owners), nil
}

// normal makes texts the same that differ in their line ends, and in space around them.
func normal(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n\f")
}

const head = `The program repolock contains code of others: of the modules and of Go's standard
library, as they are named here above their licenses and notices. repolock's own license
is in the file LICENSE (copyright in Debian's packages).
`

// join returns the texts, each below the modules that have it.
func join(owners map[string][]string) string {
	var out strings.Builder
	out.WriteString(head)
	texts := slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return cmp.Or(slices.Compare(owners[a], owners[b]), strings.Compare(a, b))
	})
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 72), strings.Join(owners[text], "\n"), strings.Repeat("-", 72), text)
	}
	return out.String()
}
