package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-shellwords"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/test/assert"
)

func examplesOf(node *kong.Node) []string {
	listed, _ := reader.Called([]string{node.Name})
	return []string{listed.Example, listed.Second}
}

// TestHelp: each command has two examples that parse and that its details don't repeat. Its help fits a screen of
// 80 columns, and the help of the commands that are typed most a screen of 24 lines. So do the topics, but for
// their length. The topics have the exit code of break-lock, and the code of a held lock.
func TestHelp(t *testing.T) {
	app := reader.Model()
	for _, node := range app.Children {
		if code, help, _ := call(node.Name, "--help"); node.Hidden {
			assert.That(t, code == 0 && !strings.Contains(help, "\n\n\n"), "%s --help: exit code %d: %q", node.Name, code, help)
			continue
		} else {
			assert.That(t, strings.Contains(strings.Join(strings.Fields(help), " "), "--repo (-r)") != node.Tag.Has("noconfig"), "help %s: --repo, or not: %s", node.Name, help)
		}
		for _, example := range examplesOf(node) {
			assert.That(t, !strings.Contains(node.Detail, example), "help %s: twice %s", node.Name, example)
			line, ok := strings.CutPrefix(example, "repolock ")
			if !ok || strings.ContainsAny(line, "&|>") { // of a script
				continue
			}
			args, err := shellwords.Parse(strings.ReplaceAll(line, "$", ""))
			assert.Need(t, err == nil, "%s: %v", example, err)
			_, err = reader.NewParser(&cli.Globals{}, args).Parse(args)
			assert.That(t, err == nil, "%s: %v", example, err)
		}
		most := 40
		if slices.Contains([]string{"backup", "restore", "prune", "status"}, node.Name) {
			most = 24
		}
		lines := strings.Count(helpOf(t, node.Name), "\n")
		assert.That(t, lines <= most, "help %s: %d lines", node.Name, lines)
		long, short := helpOf(t, node.Name), printed(t, node.Name, "--help")
		assert.That(t, long == short, "help %s isn't %s --help", node.Name, node.Name)
	}
	assert.That(t, helpOf(t) == printed(t, "--help") && printed(t, "version") == printed(t, "--version"),
		"help isn't --help, or version isn't --version")
	for topic, says := range map[string]string{"urls": "", "exit-codes": "\n  1    break-lock: ", "flags": "when the lock is held, 75",
		"env": "\n  REPOLOCK_JOB: ", "config": "if-unreachable", "cron": "--if-held skip", "json": "held_by"} {
		assert.That(t, strings.Contains(helpOf(t, topic), says), "help %s: no %q", topic, says)
	}
	for _, f := range cli.SharedFlags(app) {
		assert.That(t, strings.Contains(helpOf(t, "backup"), "--"+f.Name), "help backup: no --%s", f.Name)
		assert.That(t, strings.Contains(helpOf(t, "flags"), "--"+f.Name), "help flags: no --%s", f.Name)
	}
}

func helpOf(t *testing.T, words ...string) string {
	t.Helper()
	return printed(t, append([]string{"help"}, words...)...)
}

// printed returns what a command line prints. No line may be wider than 80 columns.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := call(args...)
	assert.That(t, code == 0 && stderr == "", "%q: exit code %d: %s", args, code, stderr)
	for line := range strings.Lines(stdout) {
		n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
		assert.That(t, n <= cli.HelpWidth, "%q: %d columns: %s", args, n, line)
	}
	return stdout
}

// TestManual: the page has every command, flag, variable and exit code that isn't hidden, and each variable with
// credentials of a minio: repository.
func TestManual(t *testing.T) {
	assert.Equal(t, regexp.MustCompile(`(?m)^[^.\n][^\n]*[^\\]-.*`).FindString(manual()), "", "a hyphen where a minus sign belongs")
	page := strings.NewReplacer(`\-`, "-", `\&`, "", `\(ti`, "~", `\(ga`, "`").Replace(manual())
	has := func(text string) {
		t.Helper()
		assert.That(t, strings.Contains(page, text), "no %q", text)
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
	model := reader.Model()
	flags(model.Flags)
	for _, c := range model.Children {
		if c.Hidden {
			assert.That(t, !strings.Contains(page, "\n.SS "+c.Name+" "), "%s is hidden", c.Name)
			continue
		}
		has("\n.SS " + c.Name)
		has(c.Help)
		has(strings.ReplaceAll(c.Detail, "\n\n", "\n")[:min(len(c.Detail), 60)])
		flags(cli.Visible(c.Flags))
	}
	for line := range strings.Lines(exitCodes) {
		if fields := strings.Fields(line); fields[0] != "Exit" {
			has("\n" + fields[0] + ": " + strings.Join(fields[1:], " "))
		}
	}
	all, tagged := strings.Count(page, "\n\\fB-"), strings.Count(page, "\n.TP\n\\fB-")
	assert.That(t, all == tagged && all >= 20, "of %d flags, %d are in the list", all, tagged)
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"} {
		has("\n.SH " + section + "\n")
	}
	for _, name := range session.Passwords {
		has("\n" + name + ": ")
	}
	for _, place := range config.System() {
		has("\n" + place + "\n")
	}
	ofMinIO := regexp.MustCompile(`(?m)^.*, for minio: repositories$`).FindString(page)
	for _, name := range []string{"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		assert.That(t, strings.Contains(ofMinIO, name), "no %s in %q", name, ofMinIO)
	}
}

func TestCompletions(t *testing.T) {
	path := configured(t, "[repositories.prod]\nurl = '/x'\n[repositories.home]\nurl = '/y'\n")
	for _, c := range []struct{ line, want string }{ // words, the last of which is completed
		{"st", "status"},
		{"torture", "torture"}, // hidden commands must be missing
		{"comple", "completion"},
		{"b", "backup break-lock"},
		{"backup --if-", "--if-held --if-unreachable"},
		{"backup --if-held ", "fail skip wait"},
		{"backup --if-held s", "skip"},
		{"backup --if-held=s", "skip"},
		{"backup --if-held = s", "skip"}, // as bash has it
		{"backup --if-held =", "fail skip wait"},
		{"backup --on-lost p", "pause"},
		{"backup --ttl = 2m --on-lost w", "warn"},
		{"backup --audit ", ":file"},
		{"prune --metrics-file=/x", ":file"},
		{"history --svg ", ":file"},
		{"history ", ":file"},
		{"-r ", ":directory home prod"},
		{"status --repo=p", ":directory prod"},
		{"doctor h", ":directory home"},
		{"--config /nowhere -r ", ":directory"},
		{"--config=" + path + " -r p", ":directory prod"},
		{"run --also ", "beads: postgres:// redis:// repo: tower-fleet:"},
		{"prune --also=re", "redis:// repo:"},
		{"status --also t", "tower-fleet:"},
		{"break-lock --also beads:x --also p", "postgres://"},
		{"doctor --also re", ":directory redis:// repo:"},
		{"completion ", "bash fish zsh"},
		{"backup ", ""},
		{"help b", "backup break-lock"},
		{"help u", "urls"},
		{"-r x help ex", "exit-codes"},
		{"help keep", ""},
		{"--operation status --config ", ":file"},
		{"-qr h", ":directory home"},
		{"backup restic --if", ""}, // the rest is restic's
	} {
		words := strings.Split(c.line, " ")
		var got []string
		for line := range strings.Lines(completed(t, words...)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		assert.That(t, slices.Equal(got, strings.Fields(c.want)), "%q: %q, want %q", c.line, got, c.want)
	}
	help := completed(t, "help", "")
	n := strings.Count(help, "\n")
	assert.That(t, n == strings.Count(help, "\t") && n >= 20 && strings.Contains(help, "\nurls\thow repositories"), "help: %s", help)
	configured(t, "bad")
	completed(t)
	completed(t, "-r", "")
	code, _, stderr := call("complete")
	assert.That(t, code == 0 && stderr == "", "exit code %d: %s", code, stderr)
}

// completed returns what can complete the last word.
func completed(t *testing.T, words ...string) string {
	t.Helper()
	code, stdout, stderr := call(append([]string{"complete", "--"}, words...)...)
	assert.That(t, code == 0 && stderr == "", "%q: exit code %d: %s", words, code, stderr)
	return stdout
}

// TestJSONPage: docs/json.md has every field of a lock, of an error and of status.
func TestJSONPage(t *testing.T) {
	raw, err := os.ReadFile("../../docs/json.md")
	assert.OK(t, err)
	page := string(raw)
	var check func(reflect.Type)
	fields := 0
	check = func(of reflect.Type) {
		for field := range of.Fields() {
			if field.Anonymous {
				check(field.Type)
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields++
			assert.That(t, strings.Contains(page, "`"+name+"`"), "%s of %v isn't there", name, of)
		}
	}
	for _, v := range []any{show.JSONLock{}, show.JSONError{}, jsonStatus{}} {
		check(reflect.TypeOf(v))
	}
	assert.That(t, fields >= 30, "only %d fields were looked for", fields)
}
