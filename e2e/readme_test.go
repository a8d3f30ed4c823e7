//go:build unix && !e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadme: each command of the README is run as it stands there.
func TestReadme(t *testing.T) {
	s := newSite(t)
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(raw)

	var setup []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readme, -1) {
		setup = append(setup, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	// The first is TestLocalScript, the second runs this, and make e2e.
	if want := []string{"sh e2e/local.sh", "make test", "go install ./cmd/repolock"}; !slices.Equal(setup, want) {
		t.Fatalf("the README's commands are %q, and %q are tested", setup, want)
	}
	install := exec.Command("sh", "-c", setup[2])
	install.Dir = ".."
	install.Env = append(os.Environ(), "GOBIN="+s.path("bin"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	// Stand-ins for what the README's commands run.
	for _, name := range []string{"restic", "CMD"} {
		if err := os.WriteFile(filepath.Join(s.path("bin"), name), []byte("#!/bin/sh\necho ran "+name+" $REPOLOCK_MODE\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := s.path("config.toml")
	if err := os.WriteFile(config, []byte("[repositories.prod]\nurl = '"+s.repo+"'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?m)(?:^    |`)(repolock [a-z-]+[^`\n]*)").FindAllStringSubmatch(readme, -1)
	if len(commands) < 10 {
		t.Fatalf("only %d commands found", len(commands))
	}
	for _, c := range commands {
		line := c[1]
		if strings.Contains(line, "|") {
			continue
		}
		switch {
		case strings.Contains(line, "break-lock"):
			line += " --yes"
		case strings.Contains(line, "--dry-run"):
			line += " -- CMD"
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = s.dir
		cmd.Env = append(os.Environ(), "REPOLOCK_REPO="+s.repo, "REPOLOCK_AUDIT=FILE", "REPOLOCK_CONFIG="+config, "PATH="+s.path("bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(line, " -- ") && !strings.Contains(string(out), "ran ") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	s.nothingLeft()
}
