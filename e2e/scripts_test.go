//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// TestLocalScript runs the script of the README. It first prints what it will do and cost, counts while Go
// builds, and ends with a picture of the run.
func TestLocalScript(t *testing.T) {
	rounds.Long(t, "it builds slowly on purpose")
	t.Parallel()
	program, err := exec.LookPath("go")
	assert.OK(t, err)
	slow := t.TempDir()
	stub := "#!/bin/sh\nif [ $1 = build ]; then printf 'one\\ntwo\\n' >&2; sleep 9; fi\nexec " + program + ` "$@"` + "\n"
	assert.OK(t, os.WriteFile(filepath.Join(slow, "go"), []byte(stub), 0o700))
	said := in(t, ".", "sh local.sh", "PATH="+slow+":"+os.Getenv("PATH"))
	t.Logf("%s", said)
	begins := regexp.MustCompile(`(?s)^This builds repolock.* about \d+ MB.*\nmodules downloaded: \d+, \d+ s\npackages compiled: 2 of at most \d{3}, \d+ s\n`)
	assert.That(t, begins.MatchString(said), "it doesn't say what it does")
	_, picture, _ := strings.Cut(said, "== what happened")
	for _, line := range strings.Split(picture, "\n") {
		assert.That(t, len(line) <= 80, "a line of %d columns: %s", len(line), line)
	}
	if !regexp.MustCompile(`
backup shared +\.*#+ +success
backup shared +\.*#+ +success
prune  exclusive +x +refused
prune  exclusive +\.*#+ +success
backup shared +\.*#\?+ +not released
prune  exclusive +\.*#+ +success
`).MatchString(picture) {
		t.Errorf("the picture isn't that of the run:%s", picture)
	}
}
