//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAcquireRefusesUnknownRepository: like backup, acquire refuses a name that is also a
// directory's, and a word that is neither a name nor a directory.
func TestAcquireRefusesUnknownRepository(t *testing.T) {
	d := newDesk(t)
	path := configured(t, "[repositories.prod]\nurl = '/x'")
	if err := os.Mkdir(filepath.Join(d.repo, "prod"), 0o700); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{"prod": "is a repository in " + path, "photos": "no repository of that name in " + path} {
		code, stdout, stderr := d.repolock("-r", word, "acquire", "--exclusive")
		if code != exitUsage && code != exitUnavailable || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: %d %s%s", word, code, stdout, stderr)
		}
	}
	d.free()
}
