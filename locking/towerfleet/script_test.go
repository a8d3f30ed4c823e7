//go:build unix && programs

package towerfleet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// script is the document's script, with the heartbeat of its section 5.3, for a directory.
type script struct{ file, dir string }

// script extracts the script from the document, and changes nothing in it.
func (w *world) script() script {
	w.Helper()
	for _, program := range []string{"bash", "jq", "mv"} {
		assert.OK(w, assert.Err(exec.LookPath(program)))
	}
	manager := section(w, "#!/bin/bash\n", "\nexport -f acquire_lock release_lock is_lock_stale\n")
	heartbeat := section(w, "update_heartbeat() {", "\n}\n")
	file := filepath.Join(w.TempDir(), "lock-manager.sh")
	assert.OK(w, os.WriteFile(file, []byte(manager+heartbeat), 0o600))
	return script{file, w.dir}
}

// section is the part of the document that begins and ends with two texts.
func section(t testing.TB, from, to string) string {
	t.Helper()
	_, text, ok := strings.Cut(document(t), from)
	text, _, ok2 := strings.Cut(text, to)
	assert.Need(t, ok && ok2, "the document has no %s", from)
	return from + text + to
}

// command runs shell commands after the script's definitions, in the script's own directory.
func (s script) command(commands string) *exec.Cmd {
	c := exec.Command("bash", "-c", `source "$0"; LOCK_DIR=$1; `+commands, s.file, s.dir)
	c.Env = append(os.Environ(), "ACTOR=script")
	return c
}

// runs requires that commands succeed.
func (s script) runs(t *testing.T, commands string) {
	t.Helper()
	assert.Output(t, s.command(commands))
}

// refuses requires that commands fail, and say these words.
func (s script) refuses(t *testing.T, commands string, words ...string) {
	t.Helper()
	out, err := s.command(commands).CombinedOutput()
	for _, says := range words {
		assert.That(t, err != nil && strings.Contains(string(out), says), "%s %v, want %q", out, err, says)
	}
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
	assert.OK(w, err)
	await, onward, err := os.Pipe()
	assert.OK(w, err)
	p := &stepped{w: w, steps: bufio.NewReader(steps), onward: onward}
	p.cmd = s.command("set -T; trap 'echo >&3; read -r -u 4 || :' DEBUG; " + commands)
	p.cmd.ExtraFiles = []*os.File{announce, await}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	err = p.cmd.Start()
	announce.Close()
	await.Close()
	assert.OK(w, err)
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
	h := lockcheck.Acquire(w, b, "n", 0)
	text := w.read("n.lock")
	s.refuses(t, "acquire_lock n req_script deploy 1", "Lock is held by active process", text)
	s.refuses(t, "release_lock n req_script", "req_ours")
	assert.That(t, w.read("n.lock") == text, "it was written")
	old, err := withHeartbeat([]byte(text), time.Now().Add(-DefaultTTL-10*time.Second))
	assert.OK(t, err)
	w.write("n.lock", string(old))
	s.refuses(t, "acquire_lock n req_script deploy 1", "Lock is stale")
	s.refuses(t, "acquire_lock n req_script deploy 1 true", "steal_lock: command not found") // it is nowhere defined
	assert.That(t, w.read("n.lock") == string(old), "it was written")
	assert.Is(t, b.Release(t.Context(), h), locking.ErrLost)
	s.runs(t, "acquire_lock n req_script deploy 1 && release_lock n req_script")
}

// TestWeSeeScript: we refuse the script's live lock and steal its stale one, after which its
// release leaves ours.
func TestWeSeeScript(t *testing.T) {
	w := outside(t)
	b, s := w.system(Options{Force: true}), w.script()
	s.runs(t, "acquire_lock n req_script deploy 1.2")
	if held := w.refused(b, "n"); held.Request != "req_script" || held.Actor != "script" || held.Stale {
		t.Errorf("%v", held)
	}
	s.runs(t, "DEFAULT_TTL=-1; create_lock_json n req_script deploy 1 | jq '.ttl_seconds = 1 | .last_heartbeat_at = \"2020-01-01T00:00:00Z\"' >$LOCK_DIR/n.lock")
	h := lockcheck.Acquire(w, b, "n", 0)
	s.refuses(t, "release_lock n req_script", b.opts.RequestID)
	lockcheck.Release(w, b, h)
}

// TestScriptHeartbeat: the script's heartbeat of our lock and ours go together.
func TestScriptHeartbeat(t *testing.T) {
	w := outside(t)
	b, s := w.system(Options{}), w.script()
	h := lockcheck.Acquire(w, b, "n", 0)
	for range 3 {
		s.runs(t, "update_heartbeat $LOCK_DIR/n.lock && ! is_lock_stale $LOCK_DIR/n.lock")
		lockcheck.Renew(w, b, h)
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
			s.runs(t, method)
			assert.Equal(t, w.refused(b, "n").Request, "req_method")
			assert.OK(t, os.Remove(w.path("n.lock")))
			h := lockcheck.Acquire(w, b, "n", 0)
			ours := w.read("n.lock")
			out, err := s.command(method).CombinedOutput()
			assert.That(t, w.read("n.lock") == ours, "it was replaced: %s %v", out, err)
			assert.That(t, name != "exclusive creation" || err != nil, "both have it")
			lockcheck.Release(w, b, h)
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
			h := lockcheck.Acquire(w, b, "n", 0)
			both := theirs.end()
			assert.That(t, both == (mv != newerMv), "both have it: %v", both)
			first := b.Renew(t.Context(), h)
			c.elapsed += interval(h.TTL())
			second := b.Renew(t.Context(), h)
			assert.That(t, first == nil && errors.Is(second, locking.ErrLost) == both, "%v, %v", first, second)
			err := b.Release(t.Context(), h)
			if errors.Is(err, locking.ErrLost) != both || len(w.files()) != map[bool]int{true: 1, false: 0}[both] {
				t.Errorf("%v %q", err, w.files())
			}
		})
	}
}

// suspended is a command of the script's acquisition between its look and its temporary file.
const suspended = 15

// races is the number of each kind of race. Each is an order of the two sides' steps, which
// the test enforces: no race depends on speed. The orders come from a seed.
const races = 500

// commands is roughly how many commands the script's acquisition has, and calls is how often we read the clock
// from an acquisition to its release.
const commands, calls = 30, 20

// The kinds of mv -n that the script meets. A shell function stands in for those that aren't
// installed.
const (
	// installedMv is this machine's. GNU mv 8.30 to 9.1 replaces nothing, and succeeds.
	installedMv = ""
	// olderMv is mv before 8.30: it looks, and then renames over a file that has appeared meanwhile.
	olderMv = `mv() { [[ -e "$3" ]] && return; command mv -f "$2" "$3"; }; `
	// newerMv is mv of 9.2 to 9.4, which fails if -n has kept it from moving:
	// https://bugs.gnu.org/62572.
	newerMv = `mv() { command mv "$@" && [[ ! -e "$2" ]]; }; `
)

// turns is a clock that lets a test act at each of our looks at it, and in our waits.
type turns struct {
	clock.System
	elapsed time.Duration
	behind  time.Duration // of the wall clock
	calls   int
	at      func(call int)
	wait    func()
}

func (c *turns) look() {
	c.calls++
	if c.at != nil {
		c.at(c.calls)
	}
}

func (c *turns) Now() time.Time {
	c.look()
	return time.Now().Add(-c.behind)
}

func (c *turns) Elapsed() time.Duration {
	c.look()
	return c.elapsed
}

func (c *turns) After(d time.Duration) <-chan time.Time {
	if c.wait != nil {
		c.wait()
	}
	c.elapsed += d
	at := make(chan time.Time, 1)
	at <- time.Now()
	return at
}

// TestScriptRaces: of a script and an acquirer, never both have the lock, in whichever order
// their steps come, as long as Settle is longer than the script takes from its look to its mv. The
// one that believes that it has the lock has it.
func TestScriptRaces(t *testing.T) {
	for _, c := range []struct {
		name, mv string
		first    bool // the script begins before our first step
	}{
		{"script first, installed mv", installedMv, true}, {"ours first, installed mv", installedMv, false},
		{"script first, older mv", olderMv, true}, {"ours first, older mv", olderMv, false},
		{"script first, newer mv", newerMv, true}, {"ours first, newer mv", newerMv, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rounds := races
			if c.mv != installedMv {
				rounds /= 2
			}
			w, r, won := outside(t), rand.New(rand.NewPCG(1, 1)), map[string]int{}
			w.system(Options{})
			s := w.script()
			for round := range rounds {
				p := plan{at: [2]int{1, 2 + r.IntN(5)}, to: [2]int{1 + r.IntN(commands), 1 + r.IntN(commands)}}
				if !c.first {
					p.at[0] = 2 + r.IntN(calls)
					p.at[1] = p.at[0] + 1 + r.IntN(5)
				}
				won[w.meet(s, c.mv, p)]++
				if files := w.files(); len(files) > 0 {
					t.Fatalf("round %d, %+v: %q are left", round, p, files)
				}
			}
			t.Logf("%d races, both had the lock 0 times: %v", rounds, won)
		})
	}
}

// plan is an order of steps: at our look at the clock at[i], the script goes on to its command
// to[i]. It ends in our Settle if it began before our lock was there, and otherwise after that.
type plan struct{ at, to [2]int }

// meet is a race of the script and us. It returns who had the lock, and removes that.
func (w *world) meet(s script, mv string, p plan) string {
	var theirs *stepped
	early := false
	c := &turns{}
	c.at = func(call int) {
		for i, at := range p.at {
			if call != at {
				continue
			}
			if theirs == nil {
				_, err := os.Lstat(w.path("n.lock"))
				early = err != nil
				theirs = w.step(s, mv+"acquire_lock n req_script deploy 1")
			}
			theirs.to(p.to[i])
		}
	}
	c.wait = func() {
		if early {
			theirs.end()
		}
	}
	b := w.system(Options{Clock: c, Settle: time.Second, Audit: func(any) {}})
	h, ours, err := b.TryLock(w.Context(), "n", time.Hour)
	assert.Need(w, err == nil, "%+v: %v", p, err)
	if ours {
		w.hold(b, h, theirs, p)
	}
	switch {
	case theirs == nil || !theirs.end():
		if ours {
			return "ours"
		}
		return "none"
	case !strings.Contains(w.read("n.lock"), "req_script"):
		w.Fatalf("%+v: the script has the lock, and not its file: %s", p, w.read("n.lock"))
	}
	assert.OK(w, os.Remove(w.path("n.lock")))
	if ours {
		return "ours, then the script"
	}
	return "script"
}

// hold renews and releases our lock. A script that has begun before the release must fail; one
// that begins meanwhile ends after it.
func (w *world) hold(b *Backend, h locking.Handle, theirs *stepped, p plan) {
	if err := b.Renew(w.Context(), h); err != nil {
		w.Fatalf("%+v: %v", p, err)
	}
	assert.Need(w, theirs == nil || !theirs.end(), "%+v: both have it: %q", p, w.files())
	if err := b.Release(w.Context(), h); err != nil {
		w.Fatalf("%+v: %v", p, err)
	}
}

// TestHeartbeatRacesScriptsSteal: a script that steals by section 6.3 has the lock
// afterwards, in whichever order our heartbeats come between. Our clock is an hour behind, so that
// our lock is live for us and stale for the script.
func TestHeartbeatRacesScriptsSteal(t *testing.T) {
	t.Parallel()
	w, r := outside(t), rand.New(rand.NewPCG(1, 3))
	w.system(Options{})
	s, seen := w.script(), map[string]int{}
	for round := range races {
		c := &turns{behind: time.Hour}
		b := w.system(Options{Clock: c})
		h := lockcheck.Acquire(w, b, "n", 0)
		steal := "rm $LOCK_DIR/n.lock && acquire_lock n req_thief deploy 1"
		if round%10 == 0 { // it takes as long as the rest
			steal = "is_lock_stale $LOCK_DIR/n.lock && " + steal
		}
		theirs := w.step(s, steal)
		c.calls, c.at = 0, func(call int) {
			if call%3 == round%3 {
				leap := 8
				if r.IntN(3) == 0 {
					leap = 2 * commands // the whole steal, between our look and our write
				}
				theirs.to(theirs.at + 1 + r.IntN(leap))
			}
		}
		beats := 0
		for err := error(nil); err == nil && !theirs.ended; beats++ {
			if err = b.Renew(t.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) {
				t.Fatal(err)
			}
		}
		c.at = nil
		if text := ""; !theirs.end() {
			t.Fatalf("round %d: the thief has failed", round)
		} else if text = w.read("n.lock"); !strings.Contains(text, "req_thief") {
			t.Fatalf("round %d: the thief has lost the lock: %s", round, text)
		}
		for what, err := range map[string]error{"renew": b.Renew(t.Context(), h), "release": b.Release(t.Context(), h)} {
			assert.Need(t, errors.Is(err, locking.ErrLost), "round %d: %s: %v", round, what, err)
		}
		seen[fmt.Sprintf("lost at heartbeat %d", beats)]++
		if files := w.files(); len(files) != 1 || os.Remove(w.path("n.lock")) != nil {
			t.Fatalf("round %d: %q", round, files)
		}
	}
	t.Logf("%d steals, the thief had the lock each time: %v", races, seen)
}

// TestStealRacesScriptsHeartbeat: a script that was suspended beyond its ttl writes a heartbeat
// while we steal its lock, in whichever order. Either the script has its lock again and we are
// refused, or we have the lock and keep it.
func TestStealRacesScriptsHeartbeat(t *testing.T) {
	t.Parallel()
	w, r, won := outside(t), rand.New(rand.NewPCG(1, 4)), map[string]int{}
	w.system(Options{})
	s := w.script()
	for round := range races {
		w.write("n.lock", foreign("n", "req_script", time.Now().Add(-time.Hour), 900))
		theirs, c := w.step(s, "update_heartbeat $LOCK_DIR/n.lock"), &turns{}
		first, second, revived := 2+r.IntN(4), 2+r.IntN(8), false
		c.at = func(call int) {
			if call != 1 && call != first && call != first+second {
				return
			}
			theirs.to(r.IntN(12))
			f, err := parse([]byte(w.read("n.lock")), "n")
			revived = revived || err == nil && f.RequestID == "req_script" && !f.stale(time.Now())
		}
		b := w.system(Options{Clock: c, Settle: time.Second, Force: true, Audit: func(any) {}})
		h, ours, err := b.TryLock(t.Context(), "n", time.Hour)
		if err != nil || !theirs.end() {
			t.Fatalf("round %d: %v, the script %v", round, err, theirs.err)
		}
		text := w.read("n.lock")
		f, err := parse([]byte(text), "n")
		if ours {
			err = fault.Join(err, b.Renew(t.Context(), h), b.Release(t.Context(), h))
		}
		switch {
		case err != nil:
			t.Fatalf("round %d: %v: %s", round, err, text)
		case ours && revived:
			t.Fatalf("round %d: a live lock was stolen", round)
		case !ours && (f.RequestID != "req_script" || f.stale(time.Now())):
			t.Fatalf("round %d: refused, and the script's lock is %s", round, text)
		case !ours && os.Remove(w.path("n.lock")) != nil, len(w.files()) > 0:
			t.Fatalf("round %d: %q", round, w.files())
		}
		won[map[bool]string{true: "ours", false: "script"}[ours]]++
	}
	t.Logf("%d steals beside a heartbeat, both had the lock 0 times: %v", races, won)
}
