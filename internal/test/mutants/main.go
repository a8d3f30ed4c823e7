// Mutants puts bugs into the program, one at a time, and checks that the proof finds each: by the
// history or the test that the list names for it. A proof that misses one is blind in that place.
//
// No file of the tree changes. A mutant of a function is a copy of that function beside it, which
// runs in its place if MUTANT_ON has the mutant's number: so each package is compiled once, with
// all of its mutants, by go build -overlay. A mutant of another declaration is compiled alone.
//
//	go run ./internal/test/mutants                     find each mutant as the list says
//	go run ./internal/test/mutants -name 'ticket'      those whose name, file or finder matches
//	go run ./internal/test/mutants -matrix ./store/dir run all short tests of a package for each of its mutants
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mutant is a bug: in file, the text old, which occurs once, becomes new. by finds it.
type mutant struct {
	name, file, old, new string
	by                   finder
}

// finder finds a mutant: a history of the simulator, or tests of a package.
type finder struct {
	seed  int    // of a history; 0: tests
	scene string // that the history is about, or none
	pkg   string
	run   string // go test -run
	tags  string
}

func seed(n int) finder { return scene("", n) }

func scene(name string, n int) finder {
	return finder{seed: n, scene: name, pkg: "./internal/test/sim", run: "^TestSeeds$"}
}

// test finds by tests of a package, whose names are an expression: "TestSeeds", "TestScripts/held".
func test(pkg, names string, tags ...string) finder {
	run := "^(" + strings.ReplaceAll(names, "/", ")$/^(") + ")$"
	return finder{pkg: pkg, run: run, tags: strings.Join(tags, ",")}
}

// own finds by tests of the package of the mutant's file.
func own(names string, tags ...string) finder { return test("", names, tags...) }

// engine finds by tests of the engine, which uses the package of the mutant's file.
func engine(names string) finder { return test("./replock", names) }

func (f finder) String() string {
	switch {
	case f.seed == 0:
		return f.pkg + " " + f.run
	case f.scene != "":
		return fmt.Sprintf("seed %d of %s", f.seed, f.scene)
	default:
		return fmt.Sprint("seed ", f.seed)
	}
}

// all returns every mutant. Its number is its index and 1.
func all() []mutant {
	list := slices.Concat(engineMutants, pairsMutants, storeMutants, lockingMutants, contractMutants, processMutants, roomsMutants, commandMutants, e2eMutants, kindsMutants)
	for i := range list {
		list[i].by.pkg = cmp.Or(list[i].by.pkg, "./"+path.Dir(list[i].file))
	}
	return list
}

func main() {
	search := flag.Int("search", 1000, "histories in which to look for a mutant that its own seed doesn't find")
	name := flag.String("name", "", "only the mutants whose name, file or finder matches this expression")
	matrix := flag.String("matrix", "", "run all short tests of this package, and say which of them find each mutant of its folder")
	tags := flag.String("tags", "", "build tags of -matrix")
	flag.Parse()
	err := run(*search, *name, *matrix, *tags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(search int, name, matrix, tags string) error {
	wanted, err := regexp.Compile(name)
	if err != nil {
		return err
	}
	chosen := map[int]mutant{}
	for i, m := range all() {
		if !wanted.MatchString(m.name) && !wanted.MatchString(m.file) && !wanted.MatchString(m.by.String()) {
			continue
		}
		if matrix != "" && name == "" && path.Dir(m.file) != path.Clean(matrix) {
			continue
		}
		chosen[i+1] = m
	}
	l, err := newLab(chosen)
	if err != nil {
		return err
	}
	defer l.close()
	if matrix != "" {
		return l.matrix(matrix, tags)
	}
	return l.hunt(search)
}
