package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-shellwords"
)

var update = flag.Bool("update", false, "write what was printed into the golden files")

// TestMistakes: testdata/mistakes.txt has wrong command lines, and what repolock prints and exits
// with. Each is one error, with at most one hint, and changes nothing. With -update the file is
// written anew: read it as a person who has made the mistake.
func TestMistakes(t *testing.T) {
	const golden = "testdata/mistakes.txt"
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(golden)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"REPOLOCK_REPO", "REPOLOCK_AUDIT", "REPOLOCK_JOB", "REPOLOCK_TOKEN"} {
		t.Setenv(name, "")
	}
	t.Setenv("REPOLOCK_CONFIG", "") // none
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", dir)
	write(t, filepath.Join(dir, "repo", "data"), "a backup")
	write(t, filepath.Join(dir, "broken", "index", "lock.shared", "x"), "not JSON")
	written := time.Now().Add(-73 * time.Hour) // its age is printed
	if err := os.Chtimes(filepath.Join(dir, "broken", "index", "lock.shared", "x"), written, written); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "text"), "no program, and no log")
	for name, begins := range map[string]string{"crlf": "#!/bin/sh\r\n", "badint": "#!/nowhere/python\n", "noshebang": "echo hello\n"} {
		write(t, filepath.Join(dir, name), begins)
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "bad.toml"), "repo = \"nowhere\"\n[defaults]\nttl = \"60\"\n")
	before := tree(t, dir)
	var got strings.Builder
	said := map[string]bool{}
	for line := range strings.Lines(string(file)) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ repolock")
		if !ok {
			if strings.HasPrefix(line, "#") {
				fmt.Fprintf(&got, "\n%s", line)
			}
			continue
		}
		if said[command] {
			t.Errorf("twice: repolock%s", command)
		}
		said[command] = true
		args, err := shellwords.Parse(command)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		var out, stderr bytes.Buffer
		code := run(args, &out, &stderr)
		if code == 0 {
			t.Errorf("repolock%s: exits with 0", command)
		}
		lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
		if len(args) > 0 && args[0] != "--json" && (!strings.HasPrefix(lines[0], "repolock: error: ") || len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "repolock: hint: ")) {
			t.Errorf("repolock%s: isn't one error with its hint:\n%s", command, stderr.String())
		}
		for _, l := range lines {
			if len(strings.ReplaceAll(l, dir, "DIR")) > 300 {
				t.Errorf("repolock%s: a line of %d characters: %s", command, len(l), l)
			}
		}
		fmt.Fprintf(&got, "\n$ repolock%s\n%s%s  exit code %d\n", command, out.String(), stderr.String(), code)
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("files changed:\n%s", diff)
	}
	if len(said) < 120 {
		t.Errorf("%d mistakes, and not 120", len(said))
	}
	text := strings.TrimPrefix(strings.ReplaceAll(got.String(), dir, "DIR"), "\n")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(file), text); diff != "" {
		t.Errorf("-%s +what is printed:\n%s", golden, diff)
	}
}
