//go:build unix && programs

package towerfleet

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// These tests run the script of the document, section 10.2, with bash, jq and mv.

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

// TestMethods: both ways of section 4.2 to create a lock exclude us, and we exclude them.
func TestMethods(t *testing.T) {
	for name, text := range map[string]string{
		"exclusive creation": section(t, "set -o noclobber\n", `echo "$lock_json" > "$lock_path"`+"\n"),
		"rename from temp":   section(t, `temp_path="${lock_path}.${request_id}.tmp"`+"\n", "exit 1; }\n"),
	} {
		t.Run(name, func(t *testing.T) {
			w := outside(t)
			b, s := w.system(Options{}), w.script()
			method := "lock_json=$(create_lock_json n req_method deploy 1); lock_path=$LOCK_DIR/n.lock; request_id=req_method; " + text
			if out, err := s.run(method); err != nil {
				t.Fatalf("%s %v", out, err)
			}
			if held := w.refused(b, "n"); held.record.RequestID != "req_method" {
				t.Errorf("%v", held)
			}
			if err := os.Remove(w.path("n.lock")); err != nil {
				t.Fatal(err)
			}
			h := w.acquire(b, "n", 0)
			ours := w.read("n.lock")
			out, err := s.run(method)
			if w.read("n.lock") != ours {
				t.Errorf("it was replaced: %s %v", out, err)
			}
			if name == "exclusive creation" && err == nil {
				t.Error("both have it")
			}
			if err := b.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestScriptSlowerThanSettle: a script that has seen no lock, and that is suspended for longer
// than Settle before it writes its temporary file, runs beside us if its mv succeeds without
// moving. Our second heartbeat notices it.
func TestScriptSlowerThanSettle(t *testing.T) {
	for name, mv := range map[string]string{"installed": installedMv, "older": olderMv, "newer": newerMv} {
		t.Run(name, func(t *testing.T) {
			w := outside(t)
			c := &turns{}
			b := w.system(Options{Settle: time.Second, Clock: c})
			theirs := w.step(w.script(), mv+"acquire_lock n req_script deploy 1")
			theirs.to(suspended)
			h := w.acquire(b, "n", 0)
			both := theirs.end()
			if both != (mv != newerMv) {
				t.Errorf("both have it: %v", both)
			}
			first := b.Renew(t.Context(), h)
			c.elapsed += Interval(h.TTL())
			second := b.Renew(t.Context(), h)
			if first != nil || errors.Is(second, locking.ErrLost) != both {
				t.Errorf("%v, %v", first, second)
			}
			err := b.Release(t.Context(), h)
			if errors.Is(err, locking.ErrLost) != both || len(w.files()) != map[bool]int{true: 1, false: 0}[both] {
				t.Errorf("%v %q", err, w.files())
			}
		})
	}
}

// suspended is a command of the script's acquisition between its look and its temporary file.
const suspended = 15
