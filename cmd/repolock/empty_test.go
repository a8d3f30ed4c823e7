package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmptyValue: no flag of a command takes an empty value for none given, but for --config, where
// that is documented. A variable of the environment that is empty is as good as unset.
func TestEmptyValue(t *testing.T) {
	t.Setenv("REPOLOCK_CONFIG", "")
	t.Setenv("REPOLOCK_AUDIT", "")
	t.Setenv("REPOLOCK_JOB", "")
	dir := t.TempDir()
	app := newParser(&cli{}).Model
	for _, node := range app.Children {
		if node.Hidden {
			continue
		}
		for _, f := range append(visible(node.Flags), visible(app.Flags)...) {
			if f.IsBool() || f.Name == "config" {
				continue
			}
			var out, stderr bytes.Buffer
			args := []string{node.Name, "--" + f.Name + "="}
			for _, p := range node.Positional {
				switch {
				case p.Passthrough:
					args = append(args, "--", "touch", filepath.Join(dir, "ran"))
				case p.Enum != "":
					args = append(args, p.EnumSlice()[0])
				default:
					args = append(args, "x")
				}
			}
			code := run(args, &out, &stderr)
			if says := "--" + f.Name + ": its value is empty\n"; code != exitUsage || !strings.Contains(stderr.String(), says) {
				t.Errorf("%q: exit code %d: %s", args, code, &stderr)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it ran")
	}
	// A process of its own: touch takes its place.
	if out, err := exec.Command("repolock", "-r", dir, "--config=", "run", "--no-lock", "--", "touch", filepath.Join(dir, "ran")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
