package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// TestJSONIsPlain: text that others wrote into a lock or a log reaches no terminal unescaped,
// and keeps its value in JSON.
func TestJSONIsPlain(t *testing.T) {
	dir := t.TempDir()
	const evil = "\u009b2J\u202egnp\x7f"
	body := `{"operation":"` + evil + `","holder":"` + evil + `","acquired_at":"2026-03-07T09:00:00Z","expires_at":"9999-12-31T23:59:59Z","metadata":{"` + evil + `":"x"}}`
	write(t, filepath.Join(dir, "repo", "index", "lock.shared", "x"), body)
	write(t, filepath.Join(dir, "log"), `{"event":"lock_acquired","timestamp":"2026-03-07T09:00:00Z","operation":"`+evil+`","mode":"`+evil+`"}`)
	t.Setenv("REPOLOCK_REPO", filepath.Join(dir, "repo"))
	audit := filepath.Join(dir, "audit")
	for _, args := range [][]string{
		{"status"}, {"history", filepath.Join(dir, "log")}, {"prune", "--audit", audit, "--", "touch", "RAN"}, {"break-lock", "--yes", "--audit", audit}, {"history", audit},
	} {
		var out, errs bytes.Buffer
		run(append([]string{"--json"}, args...), &out, &errs)
		text := out.String() + errs.String()
		if strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %q", args[0], text)
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil || len(args) == 1 && !holds(v, evil) {
			t.Errorf("%s: %v\n%s", args[0], err, text)
		}
	}
	text, err := os.ReadFile(audit)
	if err != nil || !bytes.Contains(text, []byte("lock_broken")) || bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("%v: %q", err, text)
	}
}

// holds reports whether a JSON value contains a text.
func holds(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return v == text
	case []any:
		for _, e := range v {
			if holds(e, text) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if holds(e, text) {
				return true
			}
		}
	}
	return false
}
