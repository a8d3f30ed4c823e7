//go:build unix && programs

package towerfleet

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// These tests run the script of the document, section 10.2, with bash, jq and mv.

// script is the document's script for a directory.
type script struct{ file string }

func (w *world) script() script {
	w.Helper()
	for _, program := range []string{"bash", "jq", "mv"} {
		if _, err := exec.LookPath(program); err != nil {
			w.Fatal(err)
		}
	}
	cut := func(from, to string) string {
		_, text, ok := strings.Cut(document(w), from)
		text, _, ok2 := strings.Cut(text, to)
		if !ok || !ok2 {
			w.Fatalf("the document has no %s", from)
		}
		return from + text + to
	}
	text := cut("#!/bin/bash\n", "\nexport -f acquire_lock release_lock is_lock_stale\n")
	own := strings.Replace(text, `LOCK_DIR="/root/tower-fleet/logs/locks"`, `LOCK_DIR="`+w.dir+`"`, 1)
	if own == text {
		w.Fatal("the script has no LOCK_DIR")
	}
	file := filepath.Join(w.TempDir(), "lock-manager.sh")
	if err := os.WriteFile(file, []byte(own+cut("update_heartbeat() {", "\n}\n")), 0o600); err != nil {
		w.Fatal(err)
	}
	return script{file}
}

// command runs shell commands after the script's definitions. Each command of the script writes
// a line to steps, if that isn't nil.
func (s script) command(steps *os.File, commands string) *exec.Cmd {
	c := exec.Command("bash", "-c", `source "$0"; `+commands, s.file)
	if steps != nil {
		c.Args[2] = `source "$0"; set -T; trap 'echo >&3' DEBUG; ` + commands
		c.ExtraFiles = []*os.File{steps}
	}
	c.Env = append(os.Environ(), "ACTOR=script")
	return c
}

func (s script) run(commands string) (string, error) {
	out, err := s.command(nil, commands).CombinedOutput()
	return string(out), err
}

// outside is a world on the machine's clock.
func outside(t *testing.T) *world {
	return &world{T: t, dir: filepath.Join(t.TempDir(), "locks")}
}

// system is a backend on the machine's clock, without Settle unless opts have one.
func (w *world) system(opts Options) *Backend {
	w.Helper()
	if opts.Settle == 0 {
		opts.Settle = -1
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	return w.backend(opts)
}

// TestScriptSeesOurs: the script refuses our live lock, takes an old one of ours for stale,
// doesn't release it, and takes the lock that we have released.
func TestScriptSeesOurs(t *testing.T) {
	w := outside(t)
	b, s := w.system(Options{RequestID: "req_ours"}), w.script()
	h := w.acquire(b, "n", 0)
	text := w.read("n.lock")
	if out, err := s.run("acquire_lock n req_script deploy 1"); err == nil || !strings.Contains(out, "Lock is held by active process") || !strings.Contains(out, text) {
		t.Errorf("%s %v", out, err)
	}
	if out, err := s.run("release_lock n req_script"); err == nil || !strings.Contains(out, "req_ours") {
		t.Errorf("%s %v", out, err)
	}
	if w.read("n.lock") != text {
		t.Error("it was written")
	}
	old, err := beaten([]byte(text), time.Now().Add(-DefaultTTL-10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	w.write("n.lock", string(old))
	for _, force := range []string{"", " true"} { // its steal_lock is nowhere defined
		if out, err := s.run("acquire_lock n req_script deploy 1" + force); err == nil || !strings.Contains(out, "steal_lock: command not found") && !strings.Contains(out, "Lock is stale") {
			t.Errorf("%s %v", out, err)
		}
	}
	if w.read("n.lock") != string(old) {
		t.Error("it was written")
	}
	if err := b.Release(t.Context(), h); !errors.Is(err, locking.ErrLost) {
		t.Error(err)
	}
	if out, err := s.run("acquire_lock n req_script deploy 1 && release_lock n req_script"); err != nil {
		t.Errorf("%s %v", out, err)
	}
}

// TestWeSeeScript: we refuse the script's live lock and steal its stale one, after which its
// release leaves ours.
func TestWeSeeScript(t *testing.T) {
	w := outside(t)
	b, s := w.system(Options{Force: true}), w.script()
	if out, err := s.run("acquire_lock n req_script deploy 1.2"); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	if held := w.refused(b, "n"); held.record.RequestID != "req_script" || held.record.Actor != "script" || held.Stale {
		t.Errorf("%v", held)
	}
	if out, err := s.run("DEFAULT_TTL=-1; create_lock_json n req_script deploy 1 | jq '.ttl_seconds = 1 | .last_heartbeat_at = \"2020-01-01T00:00:00Z\"' >$LOCK_DIR/n.lock"); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	h := w.acquire(b, "n", 0)
	if out, err := s.run("release_lock n req_script"); err == nil || !strings.Contains(out, b.opts.RequestID) {
		t.Errorf("%s %v", out, err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestScriptHeartbeat: the script's heartbeat of our lock and ours go together.
func TestScriptHeartbeat(t *testing.T) {
	w := outside(t)
	b, s := w.system(Options{}), w.script()
	h := w.acquire(b, "n", 0)
	for range 3 {
		if out, err := s.run("update_heartbeat $LOCK_DIR/n.lock && ! is_lock_stale $LOCK_DIR/n.lock"); err != nil {
			t.Errorf("%s %v", out, err)
		}
		if err := b.Renew(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if err := b.Release(t.Context(), h); err != nil || len(w.files()) > 0 {
		t.Errorf("%v %q", err, w.files())
	}
}
