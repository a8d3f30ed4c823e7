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

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/test/assert"
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
	if helpOf(t) != printed(t, "--help") || printed(t, "version") != printed(t, "--version") {
		t.Error("help isn't --help, or version isn't --version")
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
	code, stdout, stderr := call(args...)
	if code != 0 || stderr != "" {
		t.Errorf("%q: exit code %d: %s", args, code, stderr)
	}
	for line := range strings.Lines(stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
			t.Errorf("%q: %d columns: %s", args, n, line)
		}
	}
	return stdout
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

// TestManual: the page has every command, flag, variable and exit code, and no hidden one, and each
// kind of variable that a minio: repository's credentials are read from.
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
	ofMinIO := regexp.MustCompile(`(?m)^.*, for minio: repositories$`).FindString(page)
	for _, name := range []string{"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		if !strings.Contains(ofMinIO, name) {
			t.Errorf("no %s in %q", name, ofMinIO)
		}
	}
}

func TestCompletions(t *testing.T) {
	path := configured(t, "[repositories.prod]\nurl = '/x'\n[repositories.home]\nurl = '/y'\n")
	for _, c := range []struct{ line, want string }{ // words, the last of which is completed
		{"st", "status"},
		{"torture", "torture"}, // hidden commands must be missing
		{"comple", "completion"},
		{"-r x st", "status"},
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
		{"help urls ", ""},
		{"--name backup st", "status"}, // a value is no command
		{"--operation status --config ", ":file"},
		{"-qr h", ":directory home"},
		{"-qrx st", "status"},
		{"backup restic --if", ""}, // the rest is restic's
		{"backup -- --if", ""},
		{"doctor x ", ""},
		{"--none=", ""},
	} {
		words := strings.Split(c.line, " ")
		var got []string
		for line := range strings.Lines(completed(t, words...)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	help := completed(t, "help", "")
	if n := strings.Count(help, "\n"); n != strings.Count(help, "\t") || n < 20 || !strings.Contains(help, "\nurls\thow repositories") {
		t.Errorf("help: %s", help)
	}
	configured(t, "bad")
	completed(t)
	completed(t, "-r", "")
	if code, _, stderr := call("complete"); code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// completed returns what can complete the last word.
func completed(t *testing.T, words ...string) string {
	t.Helper()
	code, stdout, stderr := call(append([]string{"complete", "--"}, words...)...)
	if code != 0 || stderr != "" {
		t.Errorf("%q: exit code %d: %s", words, code, stderr)
	}
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
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s of %v isn't there", name, of)
			}
		}
	}
	for _, v := range []any{jsonLock{}, jsonError{}, jsonStatus{}} {
		check(reflect.TypeOf(v))
	}
	if fields < 30 {
		t.Errorf("only %d fields were looked for", fields)
	}
}
