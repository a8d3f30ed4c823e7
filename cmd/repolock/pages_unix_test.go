//go:build unix

package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
)

// TestScriptsDoc runs each script of docs/scripts.md unchanged.
func TestScriptsDoc(t *testing.T) {
	page, err := docblocks.Read("../../docs/scripts.md")
	assert.OK(t, err)
	blocks := page.Fenced["sh"]
	says := []string{
		`(?s)^first step\nVERDICT .*\nlive +shared +nightly .*\nsecond step\ndone\n$`,
		`(?s)^beside it\n.*refused with 75\n$`,
	}
	if len(blocks) != len(says) {
		t.Fatalf("%d scripts, and %d are tested", len(blocks), len(says))
	}
	for i, block := range blocks {
		d := newDesk(t)
		out, err := d.command("sh", "-c", block).Output()
		assert.That(t, err == nil && regexp.MustCompile(says[i]).Match(out), "%v\n%s", err, out)
		d.free()
	}
}

// TestConfigurationPage: the example of the page is a valid file with every key, and its
// commands work.
func TestConfigurationPage(t *testing.T) {
	raw, err := os.ReadFile("../../docs/configuration.md")
	assert.OK(t, err)
	page, err := docblocks.Read("../../docs/configuration.md")
	assert.OK(t, err)
	block := func(kind string) string {
		found := page.Fenced[kind]
		if len(found) != 1 {
			t.Fatalf("%d blocks of %s", len(found), kind)
		}
		return found[0]
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.toml")
	write(t, file, block("toml"))
	loaded, err := config.Load(file)
	assert.OK(t, err)
	assert.OK(t, check(loaded))
	assert.That(t, loaded.Repo == "prod" && len(loaded.Repositories) == 3, "%+v", loaded)
	there := loaded.Defaults.Values()
	for _, r := range loaded.Repositories {
		maps.Copy(there, r.Values())
	}
	for _, name := range fileKeys() {
		assert.That(t, there[name] != nil && strings.Contains(string(raw), "`"+name+"`"), "%s isn't in the example, or not explained", name)
	}

	// A directory replaces the bucket and the paths that need privileges.
	for _, d := range []string{"repo", "bin"} {
		assert.OK(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	text := regexp.MustCompile(`"s3:[^"]*"`).ReplaceAllString(block("toml"), `"`+filepath.Join(dir, "repo")+`"`)
	text = regexp.MustCompile(`"/var/.*/`).ReplaceAllString(text, `"`+dir+"/")
	write(t, file, text)
	assert.OK(t, os.WriteFile(filepath.Join(dir, "bin", "restic"), []byte("#!/bin/sh\necho $REPOLOCK_REPO $*\n"), 0o700))
	cmd := exec.Command("sh", "-e", "-c", block("sh"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REPOLOCK_CONFIG="+file, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for _, shown := range []string{"prod    " + dir + "/repo", "read from " + file, dir + "/repo backup /home\n", "no locks\n"} {
		assert.That(t, err == nil && strings.Contains(string(out), shown), "no %q: %v\n%s", shown, err, out)
	}
	_, err = os.Stat(filepath.Join(dir, "repolock.jsonl"))
	assert.That(t, err == nil, "%v", err)
}

// TestOthersMayWrite: a file that other users can change is refused, however it is named.
func TestOthersMayWrite(t *testing.T) {
	dir := t.TempDir()
	path := configured(t, "[repositories.prod]\nurl = '"+dir+"'\n")
	for mode, code := range map[os.FileMode]int{0o644: 0, 0o664: fault.ExitUnfit, 0o602: fault.ExitUnfit} {
		assert.OK(t, os.Chmod(path, mode))
		got, _, stderr := call("-r", "prod", "status")
		assert.That(t, got == code && (code == 0 || strings.Contains(stderr, path+": others may write to it")),
			"mode %o: exit code %d: %s", mode, got, stderr)
	}
}
