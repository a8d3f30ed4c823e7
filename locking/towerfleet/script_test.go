//go:build unix && programs

package towerfleet

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// script is the document's script, with the heartbeat of its section 5.3, for a directory.
type script struct{ file, dir string }

// script extracts the script from the document, and changes nothing in it.
func (w *world) script() script {
	w.Helper()
	for _, program := range []string{"bash", "jq", "mv"} {
		if _, err := exec.LookPath(program); err != nil {
			w.Fatal(err)
		}
	}
	manager := section(w, "#!/bin/bash\n", "\nexport -f acquire_lock release_lock is_lock_stale\n")
	heartbeat := section(w, "update_heartbeat() {", "\n}\n")
	file := filepath.Join(w.TempDir(), "lock-manager.sh")
	if err := os.WriteFile(file, []byte(manager+heartbeat), 0o600); err != nil {
		w.Fatal(err)
	}
	return script{file, w.dir}
}

// section is the part of the document that begins and ends with two texts.
func section(t testing.TB, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(document(t), from)
	text, _, ok2 := strings.Cut(text, to)
	if !ok || !ok2 {
		t.Fatalf("the document has no %s", from)
	}
	return from + text + to
}

// command runs shell commands after the script's definitions, in the script's own directory.
func (s script) command(commands string) *exec.Cmd {
	c := exec.Command("bash", "-c", `source "$0"; LOCK_DIR=$1; `+commands, s.file, s.dir)
	c.Env = append(os.Environ(), "ACTOR=script")
	return c
}

func (s script) run(commands string) (string, error) {
	out, err := s.command(commands).CombinedOutput()
	return string(out), err
}

// stepped is a script that stops before each of its commands.
type stepped struct {
	w      *world
	cmd    *exec.Cmd
	steps  *bufio.Reader
	onward *os.File
	out    bytes.Buffer
	at     int // the command that it is to run next, from 1
	ended  bool
	err    error
}

// step starts a script that stops before each command, until it is let go on.
func (w *world) step(s script, commands string) *stepped {
	w.Helper()
	steps, announce, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	await, onward, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	p := &stepped{w: w, steps: bufio.NewReader(steps), onward: onward}
	p.cmd = s.command("set -T; trap 'echo >&3; read -r -u 4 || :' DEBUG; " + commands)
	p.cmd.ExtraFiles = []*os.File{announce, await}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	err = p.cmd.Start()
	announce.Close()
	await.Close()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.end()
		steps.Close()
	})
	return p
}

// to lets the script run until it is before its nth command, or has ended.
func (p *stepped) to(nth int) {
	for !p.ended && p.at < nth {
		if p.at > 0 {
			if _, err := p.onward.Write([]byte("\n")); err != nil {
				p.end()
				return
			}
		}
		if _, err := p.steps.ReadByte(); err != nil {
			p.end()
			return
		}
		p.at++
	}
}

// end lets the script run to its end, and reports whether it succeeded.
func (p *stepped) end() bool {
	if !p.ended {
		p.ended = true
		p.onward.Close() // it reads the end of the pipe from now on
		_, _ = io.Copy(io.Discard, p.steps)
		p.err = p.cmd.Wait()
	}
	return p.err == nil
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
	w.release(b, h)
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
		w.renew(b, h)
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
			w.release(b, h)
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
