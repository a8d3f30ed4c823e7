//go:build unix

package beads

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
)

// bd puts a script into PATH that prints a text, as bd version does. It is the only bd there. The tests of e2e run the
// real one.
func bd(t *testing.T, prints string) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$*\" = version ] || exit 1\ncat <<'END'\n" + prints + "\nEND\n"
	assert.OK(t, os.WriteFile(filepath.Join(dir, "bd"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func finding(t *testing.T, b *Backend, what string) locking.Finding {
	t.Helper()
	found, err := b.Examine(t.Context())
	assert.OK(t, err)
	if i := slices.IndexFunc(found, func(f locking.Finding) bool { return f.What == what }); i >= 0 {
		return found[i]
	}
	return locking.Finding{}
}

// TestWhichBD: bd v0.17.7 to v0.49.6 looks at the lock. Any other bd is a risk.
func TestWhichBD(t *testing.T) {
	b := client(t, t.TempDir(), Options{})
	for prints, reads := range map[string]bool{
		"bd version 0.17.7 (dev)":                          true,
		"bd version 0.49.6 (dev: main@0123456789ab)":       true,
		"Warning: old hooks\nbd version 0.30.0 (Homebrew)": true,
		"bd version v0.49.0":                               true,
		"bd version 0.17.2 (dev)":                          false,
		"bd version 0.49.7 (dev)":                          false,
		"bd version 0.50.0 (dev)":                          false,
		"bd version 1.0.5 (dev)":                           false,
		"bd version 0.99999999999999999999.1 (dev)":        false,
		"bd version 0.49":                                  false,
		"abd version 0.49.6":                               false,
		"":                                                 false,
	} {
		bd(t, prints)
		f := finding(t, b, "bd")
		if good := f.Severity == locking.Good; good != reads || good != (f.Advice == "") || strings.Contains(f.Found, "\n") {
			t.Errorf("%q: %+v", prints, f)
		}
	}
	t.Setenv("PATH", t.TempDir())
	f := finding(t, b, "bd")
	assert.That(t, f.Severity == locking.Risky && strings.HasPrefix(f.Found, "no bd in PATH"), "%+v", f)
	bd(t, "")
	program := filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "bd")
	assert.OK(t, os.WriteFile(program, []byte("#!/bin/sh\nexit 3\n"), 0o700))
	f = finding(t, b, "bd")
	assert.That(t, f.Severity == locking.Risky && strings.HasSuffix(f.Found, "printed no version of bd: exit status 3"), "%+v", f)
}

// TestWhichDatabase: only the daemon of a SQLite database looks at the lock.
func TestWhichDatabase(t *testing.T) {
	bd(t, "bd version 0.49.6 (dev)")
	for _, c := range []struct {
		files string // a directory ends in /, and metadata.json has what follows =
		found string
		good  bool
	}{
		{"beads.db metadata.json={\"database\":\"beads.db\"}", "SQLite, beads.db", true},
		{"beads.db dolt/ metadata.json={\"backend\":\"sqlite\"}", "SQLite, beads.db", true},
		{"beads.db metadata.json={\"backend\":\"dolt\"}", "Dolt", false},
		{"dolt/", "Dolt", false},
		{"embeddeddolt/ metadata.json=damaged", "Dolt", false},
		{"vc.db beads.backup.db issues.jsonl x.db/", "none in ", false},
		{"", "none in ", false},
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(c.files) {
			name, body, _ := strings.Cut(name, "=")
			path := filepath.Join(dir, name)
			if strings.HasSuffix(name, "/") {
				assert.OK(t, os.Mkdir(path, 0o700))
				continue
			}
			assert.OK(t, os.WriteFile(path, []byte(body), 0o600))
		}
		f := finding(t, client(t, dir, Options{}), "database")
		if !strings.HasPrefix(f.Found, c.found) || (f.Severity == locking.Good) != c.good || (f.Advice == "") != c.good {
			t.Errorf("%q: %+v", c.files, f)
		}
	}
}

// TestWhichDirectory: Examine reports a redirect, and warns of one that bd ignores.
func TestWhichDirectory(t *testing.T) {
	bd(t, "bd version 0.49.6 (dev)")
	main, tree := worktree(t, "../main/.beads")
	f := finding(t, client(t, tree, Options{}), "redirect")
	assert.That(t, f.Severity == locking.Good && strings.Contains(f.Found, "names "+main), "%+v", f)
	assert.Equal(t, finding(t, client(t, main, Options{}), "redirect"), locking.Finding{}, "redirect of main")
	_, tree = worktree(t, "../nowhere")
	f = finding(t, client(t, tree, Options{}), "redirect")
	assert.That(t, f.Severity == locking.Risky && strings.Contains(f.Found, "/nowhere, which is no directory"), "%+v", f)
}

// TestWorktreeOfGit: in a linked worktree bd works on the main repository's .beads directory even without a redirect.
func TestWorktreeOfGit(t *testing.T) {
	bd(t, "bd version 0.49.6 (dev)")
	for _, c := range []struct {
		redirect, gitdir, common string
		warns                    bool
	}{
		{"", "TOP/main/.git/worktrees/tree", "../..", true},
		{"", "../main/.git/worktrees/tree", "../..", true},
		{"", "TOP/main/.git/worktrees/tree", "TOP/main/.git", true},
		{"../main/.beads", "TOP/main/.git/worktrees/tree", "../..", false},
		{"", "TOP/main/.git/worktrees/tree", "", false},       // a submodule has no commondir
		{"", "TOP/main/.git/worktrees/gone", "../..", false},  // pruned
		{"", "TOP/other/.git/worktrees/tree", "../..", false}, // a repository without .beads
	} {
		main, tree := worktree(t, c.redirect)
		top := filepath.Dir(filepath.Dir(main))
		for _, repository := range []string{"main", "other"} {
			private := filepath.Join(top, repository, ".git/worktrees/tree")
			assert.OK(t, os.MkdirAll(private, 0o700))
			if c.common != "" {
				assert.OK(t, os.WriteFile(filepath.Join(private, "commondir"), []byte(strings.ReplaceAll(c.common, "TOP", top)+"\n"), 0o600))
			}
		}
		assert.OK(t, os.WriteFile(filepath.Join(filepath.Dir(tree), ".git"), []byte("gitdir: "+strings.ReplaceAll(c.gitdir, "TOP", top)+"\n"), 0o600))
		f := finding(t, client(t, tree, Options{}), "worktree")
		if warns := f.Severity == locking.Risky; warns != c.warns || warns && f.Advice != fmt.Sprintf("lock beads:%s", main) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// TestNoWorktree: a directory beside a .git that names no git directory, or beside none, is in no worktree.
func TestNoWorktree(t *testing.T) {
	bd(t, "bd version 0.49.6 (dev)")
	for name, text := range map[string]string{"commondir": "../main/.git", ".git": "../main/.git/worktrees/tree"} {
		main, tree := worktree(t, "")
		private := filepath.Join(filepath.Dir(main), ".git/worktrees/tree")
		assert.OK(t, os.MkdirAll(private, 0o700))
		assert.OK(t, os.WriteFile(filepath.Join(private, "commondir"), []byte("../.."), 0o600))
		assert.OK(t, os.WriteFile(filepath.Join(filepath.Dir(tree), name), []byte(text), 0o600))
		assert.Equal(t, finding(t, client(t, tree, Options{}), "worktree"), locking.Finding{}, name)
	}
}
