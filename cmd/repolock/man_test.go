package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/config"
)

// TestManual: the page has every command, flag, variable and exit code, and no hidden one.
func TestManual(t *testing.T) {
	if found := regexp.MustCompile(`(?m)^[^.\n][^\n]*[^\\]-.*`).FindString(manual()); found != "" {
		t.Errorf("a hyphen where a minus sign belongs: %s", found)
	}
	page := strings.NewReplacer(`\-`, "-", `\&`, "", `\(ti`, "~", `\(ga`, "`").Replace(manual())
	has := func(text string) {
		t.Helper()
		if !strings.Contains(page, text) {
			t.Errorf("no %q", text)
		}
	}
	flags := func(flags []*kong.Flag) {
		for _, f := range flags {
			has("--" + f.Name)
			has(f.Help)
			for _, env := range f.Envs {
				has("\n" + env + ": ")
			}
		}
	}
	model := newParser(&cli{}).Model
	flags(model.Flags)
	for _, c := range model.Children {
		if c.Hidden {
			if strings.Contains(page, "\n.SS "+c.Name+" ") {
				t.Errorf("%s is hidden", c.Name)
			}
			continue
		}
		has("\n.SS " + c.Name)
		has(c.Help)
		has(strings.ReplaceAll(c.Detail, "\n\n", "\n")[:min(len(c.Detail), 60)])
		flags(c.Flags)
	}
	for line := range strings.Lines(exitCodes) {
		if fields := strings.Fields(line); fields[0] != "Exit" {
			has("\n" + fields[0] + ": " + strings.Join(fields[1:], " "))
		}
	}
	if flags, tagged := strings.Count(page, "\n\\fB-"), strings.Count(page, "\n.TP\n\\fB-"); flags != tagged || flags < 20 {
		t.Errorf("of %d flags, %d are in the list", flags, tagged)
	}
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"} {
		has("\n.SH " + section + "\n")
	}
	for _, name := range session.Passwords {
		has("\n" + name + ": ")
	}
	for _, place := range config.System() {
		has("\n" + place + "\n")
	}
}

// TestManualNamesTheCredentialsOfMinIO: the page has each kind of variable that a minio:
// repository's credentials are read from, also the profile of Amazon's files.
func TestManualNamesTheCredentialsOfMinIO(t *testing.T) {
	line := regexp.MustCompile(`(?m)^.*, for minio: repositories$`).FindString(manual())
	for _, name := range []string{"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		if !strings.Contains(line, name) {
			t.Errorf("no %s in %q", name, line)
		}
	}
}
