package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

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
		var out, stderr bytes.Buffer
		if code := run(append([]string{"complete", "--"}, words...), &out, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d: %s", c.line, code, &stderr)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	var help, overview bytes.Buffer
	run([]string{"complete", "--", "help", ""}, &help, &overview)
	if n := strings.Count(help.String(), "\n"); n != strings.Count(help.String(), "\t") || n < 20 || !strings.Contains(help.String(), "\nurls\thow repositories") {
		t.Errorf("help: %s", &help)
	}
	configured(t, "bad")
	for _, args := range [][]string{{"complete"}, {"complete", "--"}, {"complete", "--", "-r", ""}} {
		var out, stderr bytes.Buffer
		if code := run(args, &out, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d: %s", args, code, &stderr)
		}
	}
}
