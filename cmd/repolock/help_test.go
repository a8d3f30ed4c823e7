package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mattn/go-shellwords"
)

// TestHelp: each command is listed once, has two examples that parse, and its help fits a screen of
// 80 columns: that of the commands that are typed most, a screen of 24 lines. So do the topics, but for
// their length.
func TestHelp(t *testing.T) {
	var listed []string
	for _, g := range groups {
		listed = append(listed, g.commands...)
	}
	app := newParser(&cli{}).Model
	var all []string
	for _, node := range app.Children {
		if node.Hidden {
			continue
		}
		all = append(all, node.Name)
		if len(examplesOf(node.Name)) < 2 {
			t.Errorf("%s: %d examples", node.Name, len(examplesOf(node.Name)))
		}
		for _, example := range examplesOf(node.Name) {
			line, ok := strings.CutPrefix(example, "repolock ")
			if !ok || strings.ContainsAny(line, "&|>") { // of a script
				continue
			}
			args, err := shellwords.Parse(strings.ReplaceAll(line, "$", ""))
			if err != nil {
				t.Fatalf("%s: %v", example, err)
			}
			if _, err := newParser(&cli{}).Parse(args); err != nil {
				t.Errorf("%s: %v", example, err)
			}
		}
		most := 40
		if slices.Contains([]string{"backup", "restore", "prune", "status"}, node.Name) {
			most = 24
		}
		if lines := strings.Count(helpOf(t, node.Name), "\n"); lines > most {
			t.Errorf("help %s: %d lines", node.Name, lines)
		}
		if long, short := helpOf(t, node.Name), printed(t, node.Name, "--help"); long != short {
			t.Errorf("help %s isn't %s --help", node.Name, node.Name)
		}
	}
	slices.Sort(listed)
	slices.Sort(all)
	if !slices.Equal(listed, all) {
		t.Errorf("the overview has %q, and there are %q", listed, all)
	}
	if helpOf(t) != printed(t, "--help") {
		t.Error("help isn't --help")
	}
	for _, topic := range topics {
		helpOf(t, topic.name)
	}
	for _, f := range sharedFlags(app) {
		if !strings.Contains(helpOf(t, "backup"), "--"+f.Name) {
			t.Errorf("help backup: no --%s", f.Name)
		}
		if !strings.Contains(helpOf(t, "flags"), "--"+f.Name) {
			t.Errorf("help flags: no --%s", f.Name)
		}
	}
}

func helpOf(t *testing.T, words ...string) string {
	t.Helper()
	return printed(t, append([]string{"help"}, words...)...)
}

// printed returns what a command line prints, of lines of at most 80 columns.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	if code := run(args, &out, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("%q: exit code %d: %s", args, code, &stderr)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
			t.Errorf("%q: %d columns: %s", args, n, line)
		}
	}
	return out.String()
}

// TestVersionFlag: --version prints what the command version prints.
func TestVersionFlag(t *testing.T) {
	if flag, command := printed(t, "--version"), printed(t, "version"); flag != command {
		t.Errorf("%q, and not %q", flag, command)
	}
}

// TestHelpHasDefaults: what a table or a flag's text must name: the exit code of break-lock, and the
// code of a held lock. No line of the examples is there twice.
func TestHelpHasDefaults(t *testing.T) {
	if codes := helpOf(t, "exit-codes"); !strings.Contains(codes, "\n  1    break-lock: ") {
		t.Errorf("no 1 of break-lock:\n%s", codes)
	}
	if flags := helpOf(t, "flags"); !strings.Contains(flags, "when the lock is held, 75") {
		t.Errorf("--held-exit-code has no default:\n%s", flags)
	}
	for _, node := range newParser(&cli{}).Model.Children {
		for _, example := range examplesOf(node.Name) {
			if strings.Contains(node.Detail, example) {
				t.Errorf("help %s: twice %s", node.Name, example)
			}
		}
	}
}
