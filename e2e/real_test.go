//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// real runs make real, in short, on a store. It must print a row, and leave nothing.
func (s *site) real(store string, env ...string) {
	s.t.Helper()
	cmd := exec.Command("make", "--no-print-directory", "-C", "..", "real", "STORE="+store, "NAME=a store of mine", "REAL=-short")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	assert.Need(s.t, err == nil, "make real: %v\n%s", err, out)
	row := "| a store of mine | `make real` on 20"
	i := strings.Index(string(out), row)
	assert.Need(s.t, i >= 0, "there is no row:\n%s", out)
	line, _, _ := strings.Cut(string(out)[i:], "\n")
	for _, want := range []string{"repolock ", "go1.", "The contract: all ", "Doctor: fit", "Torture for ", ", none wrong. ", " rounds of locks"} {
		assert.That(s.t, strings.Contains(line, want), "%q isn't in the row: %s", want, line)
	}
	s.t.Log(line)
}

// TestReal: make real proves a store, by two ways to it too, and leaves nothing there.
func TestReal(t *testing.T) {
	t.Parallel()
	t.Run("directory", func(t *testing.T) {
		s := newSite(t)
		link := s.path("link")
		assert.OK(t, os.Symlink(s.repo, link))
		s.real(s.repo, "STORE2="+link)
		left, err := filepath.Glob(s.repo + "/*")
		assert.That(t, err == nil && len(left) == 0, "%v %q", err, left)
	})
	t.Run("b2", func(t *testing.T) {
		rounds.Long(t, "another kind of store")
		t.Parallel()
		p := onB2.on(startB2(t))
		p.site(t).real(p.repo())
		for _, left := range p.left() {
			assert.That(t, strings.HasPrefix(left, "hide "), "%s is left", left)
		}
	})
	t.Run("no URL", func(t *testing.T) {
		out, err := exec.Command("make", "-C", "..", "real").CombinedOutput()
		assert.That(t, err != nil && strings.Contains(string(out), "make real STORE=URL"), "%v: %s", err, out)
	})
}
