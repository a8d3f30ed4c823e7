//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// run takes the tests of the files with exactly these build tags: the tests that match only, or if it is empty
// all but the tests in apart.
type run struct{ tags, only string }

// runs has the runs by the value of REPOLOCK_E2E_RUN. make test, and so .ci/run, has minio-short if MinIO is
// built, and the tests without a tag, which need no variable; both with -short. make cloudstic needs a copy of
// Cloudstic's repository. All others are steps of make proof.
var runs = map[string]run{
	"minio-short":    {"minio", "^Test(OnStores|Doctor)$"},
	"minio":          {"minio", ""},
	"old-minio":      {"minio", "^Test(IfMatchOnAbsentKey|Doctor)$"},
	"chaos":          {"minio", "^TestChaos"},
	"programs":       {"programs", ""},
	"protocol-race":  {"programs", "^TestProtocolRace$"},
	"programs-minio": {"minio && programs", ""},
	"paused-guest":   {"minio && programs", "^TestPausedGuest$"},
	"cloudstic":      {"minio && programs && cloudstic", ""},
}

// apart matches the tests that are runs by themselves.
var apart = regexp.MustCompile("^Test(Chaos.*|ProtocolRace|PausedGuest)$")

// chosen returns the tests of a run, or none if the run is unknown.
func chosen(name string) (names []string) {
	r, known := runs[name]
	only := regexp.MustCompile(r.only)
	for test, text := range testFiles(".") {
		first, _, _ := strings.Cut(text, "\n")
		_, tags, _ := strings.Cut(first, " && ")
		if known && tags == r.tags && only.MatchString(test) && (r.only != "" || !apart.MatchString(test)) {
			names = append(names, test)
		}
	}
	return names
}

// testFunc matches the head of a test.
var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

// testFiles returns the file of each test of these directories, by name.
func testFiles(dirs ...string) map[string]string {
	all := map[string]string{}
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				panic(err)
			}
			for _, m := range testFunc.FindAllStringSubmatch(string(raw), -1) {
				all[m[1]] = string(raw)
			}
		}
	}
	return all
}

// TestRuns: each test with a build tag is in a run, and each run is started: by a line of .ci/run or
// .ci/proof, of make for them, of short.sh, or of make cloudstic.
func TestRuns(t *testing.T) {
	taken := map[string]bool{}
	lines := slices.Concat(newCI(t).lines, strings.Split(read(t, "short.sh"), "\n"), recipe(t, "cloudstic CLOUDSTIC=."))
	for name, r := range runs {
		tests := chosen(name)
		assert.That(t, len(tests) > 0, "the run %s has no test", name)
		for _, test := range tests {
			taken[test] = true
		}
		starts := regexp.MustCompile(`^[^#]*\bREPOLOCK_E2E_RUN=` + name + ` .*-tags '?` + strings.ReplaceAll(r.tags, " && ", " ") + `\b`)
		assert.That(t, slices.ContainsFunc(lines, starts.MatchString), "nothing starts the run %s", name)
	}
	for test, text := range testFiles(".") {
		if first, _, _ := strings.Cut(text, "\n"); first != "//go:build unix" {
			assert.That(t, taken[test], "no run takes %s", test)
		}
	}
}
