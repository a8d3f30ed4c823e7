//go:build unix && programs

package towerfleet

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// until is a clock whose waits end when a script has ended: so Settle is longer than the
// script takes, on a machine of any speed.
type until struct {
	clock.System
	ended   <-chan struct{}
	elapsed *atomic.Int64
}

func (u until) Elapsed() time.Duration { return time.Duration(u.elapsed.Load()) }

func (u until) After(d time.Duration) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		<-u.ended
		u.elapsed.Add(int64(d))
		at <- time.Now()
	}()
	return at
}

// race starts a script, calls f when the script is at its nth command, and reports whether the
// script succeeded. ended is closed when it ends.
func (w *world) race(s script, commands string, nth int, f func(ended <-chan struct{})) bool {
	w.Helper()
	r, steps, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	c := s.command(steps, commands)
	c.Stdout, c.Stderr = &out, &out
	err = c.Start()
	steps.Close()
	if err != nil {
		w.Fatal(err)
	}
	lines := bufio.NewReader(r)
	for range nth {
		if _, err := lines.ReadString('\n'); err != nil {
			break // it has fewer
		}
	}
	ended, waited := make(chan struct{}), make(chan error, 1)
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		waited <- c.Wait()
		close(ended)
	}()
	f(ended)
	<-ended
	return <-waited == nil
}

// steps is more than the commands of the script's acquisition.
const steps = 50

// failingMv makes mv that of coreutils 9.2 to 9.4, which fails if -n has kept it from moving. Others
// succeed: https://bugs.gnu.org/62572.
const failingMv = `mv() { command mv "$@" && [[ ! -e "$2" ]]; }; `

// TestScriptRaces: of a script and an acquirer that begins at any of the script's commands, never
// both have the lock, and the one that believes that it has it can release it. Settle is
// longer than the script takes.
func TestScriptRaces(t *testing.T) {
	for _, c := range []struct {
		name, mv string
		rounds   int
	}{{"installed mv", "", 500}, {"failing mv", failingMv, 200}} {
		t.Run(c.name, func(t *testing.T) {
			w := outside(t)
			s, won := w.script(), map[string]int{}
			for round := range c.rounds {
				won[w.scriptRace(s, c.mv, round%steps)]++
				if files := w.files(); len(files) > 0 {
					t.Fatalf("round %d: %q are left", round, files)
				}
			}
			t.Logf("%d races, and who had the lock: %v", c.rounds, won)
		})
	}
}

// scriptRace is a race of the script and us. It returns who had the lock, and releases it.
func (w *world) scriptRace(s script, mv string, nth int) string {
	w.Helper()
	var h locking.Handle
	var ours bool
	var b *Backend
	theirs := w.race(s, mv+"acquire_lock n req_script deploy 1", nth, func(ended <-chan struct{}) {
		b = w.system(Options{Clock: until{ended: ended, elapsed: new(atomic.Int64)}, Settle: time.Second})
		var err error
		if h, ours, err = b.TryLock(w.Context(), "n", time.Hour); err != nil {
			w.Fatal(err)
		}
	})
	switch {
	case ours && theirs:
		w.Fatalf("both have it: %q", w.files())
	case ours:
		if err := b.Release(w.Context(), h); err != nil {
			w.Fatal(err)
		}
		return "ours"
	case theirs:
		if out, err := s.run("release_lock n req_script"); err != nil || strings.Contains(out, "WARN") {
			w.Fatalf("the script's lock: %s %v", out, err)
		}
		return "script"
	}
	return "none"
}

// oldMv is the mv -n of coreutils before 8.30: it looks, and then renames over what has appeared
// meanwhile. This one waits until something has.
const oldMv = `mv() { [[ -e "$3" ]] && return; echo looked >&3; until [[ -e "$3" ]]; do :; done; command mv -f "$2" "$3"; }; `

// TestOldMv: a script whose mv has looked before our lock appears replaces it, and we don't
// acquire it.
func TestOldMv(t *testing.T) {
	w := outside(t)
	s := w.script()
	r, steps, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, ended := s.command(steps, oldMv+"acquire_lock n req_script deploy 1"), make(chan struct{})
	failed := make(chan error, 1)
	hook(t, &link, func(temp, path string) error { // between our look and our link
		err := c.Start()
		steps.Close()
		if err != nil {
			return err
		}
		lines := bufio.NewReader(r)
		for line := ""; line != "looked\n"; {
			if line, err = lines.ReadString('\n'); err != nil {
				return err
			}
		}
		go func() {
			_, _ = io.Copy(io.Discard, lines)
			failed <- c.Wait()
			close(ended)
		}()
		return os.Link(temp, path)
	})
	b := w.system(Options{Clock: until{ended: ended, elapsed: new(atomic.Int64)}, Settle: time.Second})
	if held := w.refused(b, "n"); held.record.RequestID != "req_script" || !strings.Contains(w.read("n.lock"), "req_script") {
		t.Errorf("%v", held)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// TestScriptsAlone logs how often two of the script both have the lock.
func TestScriptsAlone(t *testing.T) {
	w := outside(t)
	w.system(Options{})
	s := w.script()
	both := 0
	for round := range steps {
		var second bool
		first := w.race(s, "acquire_lock n req_1 deploy 1", round, func(<-chan struct{}) {
			_, err := s.run("acquire_lock n req_2 deploy 1")
			second = err == nil
		})
		if first && second {
			both++
		}
		for _, name := range w.files() {
			if err := os.Remove(w.path(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d races of two scripts: both %d times", steps, both)
}

// TestHeartbeatRacesScriptsSteal: a script that steals by section 6.3 has the lock
// afterwards, however our heartbeats come between. Our clock is an hour late, so that our lock is
// live for us and stale for the script.
func TestHeartbeatRacesScriptsSteal(t *testing.T) {
	w := outside(t)
	s := w.script()
	var lost int
	for round := range 100 {
		b := w.system(Options{Clock: late{}})
		h := w.acquire(b, "n", 0)
		theirs := w.race(s, `is_lock_stale $LOCK_DIR/n.lock && rm $LOCK_DIR/n.lock && acquire_lock n req_thief deploy 1`, round%steps, func(ended <-chan struct{}) {
			for beating := true; beating; {
				select {
				case <-ended:
					beating = false
				default:
				}
				if err := b.Renew(t.Context(), h); err != nil {
					if !errors.Is(err, locking.ErrLost) {
						t.Fatal(err)
					}
					lost++
					break
				}
			}
		})
		if text := w.read("n.lock"); !theirs || !strings.Contains(text, "req_thief") {
			t.Fatalf("round %d: the thief succeeded: %v: %s", round, theirs, text)
		}
		if err := b.Release(t.Context(), h); !errors.Is(err, locking.ErrLost) {
			t.Fatal(err)
		}
		if files := w.files(); len(files) != 1 || os.Remove(w.path("n.lock")) != nil {
			t.Fatalf("round %d: %q", round, files)
		}
	}
	t.Logf("%d heartbeats saw the loss", lost)
}

// late is a clock an hour behind.
type late struct{ clock.System }

func (late) Now() time.Time { return time.Now().Add(-time.Hour) }
