//go:build unix && !minio

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// newSite returns a site with a repository in a directory.
func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	s.repo = s.path("repo")
	s.backend = directory{s}
	if err := os.Mkdir(s.repo, 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// directory is a repository on a local disk, which can be unmounted.
type directory struct{ s *site }

func (d directory) away() { d.rename("repo", "unmounted") }

func (d directory) back() { d.rename("unmounted", "repo") }

func (d directory) rename(from, to string) {
	d.s.t.Helper()
	if err := os.Rename(d.s.path(from), d.s.path(to)); err != nil {
		d.s.t.Fatal(err)
	}
}

func (d directory) left() []string {
	if !d.s.exists("repo/index") {
		return nil
	}
	out, _ := exec.Command("find", d.s.path("repo/index"), "!", "-type", "d").Output()
	return strings.Fields(string(out))
}
