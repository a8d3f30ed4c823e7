//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func (d *desk) script(config, text string) string {
	d.t.Helper()
	cmd := d.command("sh", "-c", text)
	cmd.Env = append(cmd.Env, "REPOLOCK_CONFIG="+config, "REPOLOCK_OUTER=", "REPOLOCK_TOKEN=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestNameIsInherited: a command that runs under a lock of the file's name means that lock.
func TestNameIsInherited(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	path := filepath.Join(t.TempDir(), "config.toml")
	write(t, path, fmt.Sprintf("repo = 'photos'\n[repositories.photos]\nurl = %q\nname = 'photos'\n", d.repo))
	for name, text := range map[string]string{
		"wrapped":   `unset REPOLOCK_REPO; repolock backup -- sh -c 'repolock prune -- echo ran; echo $?'`,
		"twice":     `unset REPOLOCK_REPO; repolock backup -- repolock restore -- sh -c 'repolock prune -- echo ran; echo $?'`,
		"by a name": `REPOLOCK_REPO=photos repolock backup -- sh -c 'repolock prune -- echo ran; echo $?'`,
		"a script":  `unset REPOLOCK_REPO; LOCK=$(repolock acquire --export --shared --for-pid $$) && eval "$LOCK" && { repolock prune -- echo ran; echo $?; repolock release; }`,
	} {
		if out := d.script(path, text); strings.Contains(out, "ran\n") || !strings.Contains(out, "\n75\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
	out := d.script(path, `unset REPOLOCK_REPO; LOCK=$(repolock acquire --export --shared --for-pid $$) && eval "$LOCK" && repolock release && repolock prune -- find . -name lock.exclusive`)
	if !strings.Contains(out, "/locks/photos/lock.exclusive") {
		t.Errorf("after the release: %s", out)
	}
	// Another repository has another lock.
	out = d.script(path, `unset REPOLOCK_REPO; mkdir other; repolock backup -- sh -c 'export REPOLOCK_REPO=$PWD/other; repolock prune -- find other -name lock.exclusive'`)
	if !strings.Contains(out, "other/index/lock.exclusive") {
		t.Errorf("another's: %s", out)
	}
}

// TestDirectoryIsInherited: the repository stays the same if the command changes its directory
// before it runs repolock.
func TestDirectoryIsInherited(t *testing.T) {
	d := newDesk(t)
	for name, text := range map[string]string{
		"wrapped":  `mkdir -p a/repo b/repo; cd a; repolock -r repo backup -- sh -c 'cd ../b; repolock prune -- echo ran; echo $?'`,
		"a script": `mkdir -p c/repo e/repo; cd c; LOCK=$(repolock -r ./repo acquire --export --shared --for-pid $$) && eval "$LOCK" && { cd ../e; repolock prune -- echo ran; echo $?; repolock release; }`,
	} {
		if out := d.script("", text); strings.Contains(out, "ran\n") || !strings.Contains(out, "\n75\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestExportClears: acquire --export clears the variables of a lock around the script, and
// those of a lock that the script has released.
func TestExportClears(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out := d.script("", `repolock run --exclusive --fence -- sh -c 'mkdir o && LOCK=$(repolock -r o acquire --export --exclusive --for-pid $$) && eval "$LOCK" && echo "fence=$REPOLOCK_FENCE." && repolock release'`)
	if !strings.Contains(out, "fence=.\n") {
		t.Errorf("a fence of another lock: %s", out)
	}
	out = d.script("", `
LOCK=$(repolock acquire --export --shared --for-pid $$) && eval "$LOCK" && repolock release
OTHER=$(REPOLOCK_OUTER= repolock acquire --shared --for-pid $$)
REPOLOCK_OUTER= repolock prune --wait forever -- true &
until repolock status | grep -q waiting; do sleep 0.05; done
(sleep 1; repolock release $OTHER) &
repolock backup --wait 1m -- echo ran; echo $?
LOCK=$(repolock acquire --export --shared --for-pid $$) && eval "$LOCK" && repolock release
echo $REPOLOCK_OUTER | wc -w
wait`)
	if !strings.Contains(out, "ran\n0\n") || !strings.Contains(out, "\n1\n") {
		t.Errorf("taken for nested: %s", out)
	}
}
