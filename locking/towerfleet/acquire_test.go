//go:build unix

package towerfleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// shown hides Break from the suite, which breaks the lock of a live holder. TestBreak has the
// rules of this format.
type shown struct {
	locking.Backend
	locking.Inspector
}

// TestConformance: repolocks alone keep the contract of package locking, also the handles of one
// request. A lock that has expired is free for clients with Force.
func TestConformance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	c := leapclock.New()
	lockingtest.Run(t, lockingtest.Config{
		New: func(t *testing.T) locking.Backend {
			b, err := Open(dir, Options{RequestID: "req_1", Force: true, Settle: -1, Clock: c})
			assert.OK(t, err)
			return shown{b, b}
		},
		Lose: func(t *testing.T, key string) {
			t.Helper()
			assert.OK(t, os.Remove(filepath.Join(dir, key+".lock")))
		},
		Keys:    []string{"a", "0", "money-tracker-production", "a_b--c", strings.Repeat("x", 128)},
		BadKeys: []string{"", "A", "a/b", "../a", "a.b", "-a", "a-", "_a", "a_", "-", "a b", "ä", "a\n", "a\x00", strings.Repeat("x", 129)},
		Expires: true,
		TTL:     100 * time.Second, // heartbeats have whole seconds
		Advance: func(d time.Duration) { c.Leap.Add(int64(d)) },
		Rounds:  rounds.Fewer(1000, 100),
	})
}

// TestOnlyForceSteals: clients without Force keep the contract, and take no lock that has expired. A client with Force
// does, and takes no live one.
func TestOnlyForceSteals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	c := leapclock.New()
	client := func(force bool) func(*testing.T) locking.Backend {
		return func(t *testing.T) locking.Backend {
			b, err := Open(dir, Options{RequestID: "req_1", Force: force, Settle: -1, Clock: c})
			assert.OK(t, err)
			return shown{b, b}
		}
	}
	lockingtest.Run(t, lockingtest.Config{
		New: client(false), Steal: client(true),
		Lose: func(t *testing.T, key string) {
			t.Helper()
			assert.OK(t, os.Remove(filepath.Join(dir, key+".lock")))
		},
		Expires: true,
		TTL:     100 * time.Second, // heartbeats have whole seconds
		Advance: func(d time.Duration) { c.Leap.Add(int64(d)) },
		Rounds:  rounds.Fewer(100, 20),
	})
}

// TestKilledHolder: our lock whose process was killed stays held until it is stale. Then it is
// refused without Force, and stolen with it; the killed request is in the event.
func TestKilledHolder(t *testing.T) {
	in(t, func(w *world) {
		const ttl = 2 * time.Hour
		force, plain := w.backend(Options{Force: true}), w.backend(Options{})
		killed := exec.Command("true")
		assert.OK(t, killed.Run())
		holder := w.backend(Options{RequestID: "req_killed"})
		h := lockcheck.Acquire(w, holder, "n", ttl)
		time.Sleep(interval(ttl))
		lockcheck.Renew(w, holder, h)
		text := strings.Replace(w.read("n.lock"), fmt.Sprint(os.Getpid(), ","), fmt.Sprint(killed.Process.Pid, ","), 1)
		w.write("n.lock", text)
		w.events = nil
		for _, stale := range []bool{false, false, true} {
			if held := w.refused(plain, "n"); held.Stale != stale || held.Request != "req_killed" || w.read("n.lock") != text {
				t.Errorf("%v", held)
			}
			if !stale {
				w.refused(force, "n")
			}
			w.left(0, "n.lock")
			time.Sleep(ttl/2 + time.Second)
		}
		lockcheck.Release(w, force, lockcheck.Acquire(w, force, "n", ttl))
		w.left(3)
		w.stolen("req_killed", "stale_lock_forced")
	})
}

// TestCreationIsAtomic: the file is complete at the moment when it appears, and it never
// replaces one. So it is on a file system without hard links, but for the completeness.
func TestCreationIsAtomic(t *testing.T) {
	for name, linked := range map[string]func(temp, path string) error{
		"link": os.Link, "no links": func(string, string) error { return syscall.EPERM },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				hook(t, &link, func(temp, path string) error {
					if _, err := os.Lstat(path); err == nil {
						t.Error("it is there before the link")
					}
					if f, err := read(temp, "n"); err != nil || f == nil || f.record == nil {
						t.Errorf("incomplete: %+v %v", f, err)
					}
					return linked(temp, path)
				})
				b := w.backend(Options{})
				h := lockcheck.Acquire(w, b, "n", 0)
				w.left(1, "n.lock")
				w.refused(b, "n")
				other := foreign("m", "req_other", time.Now(), 900)
				hook(t, &link, func(temp, path string) error { // another program creates it after our look
					w.write("m.lock", other)
					return linked(temp, path)
				})
				w.refused(b, "m")
				assert.Equal(t, w.read("m.lock"), other)
				lockcheck.Release(w, b, h)
			})
		})
	}
}

// TestNeverTwo: of many that steal a stale lock at once, each with its own Backend, exactly one succeeds.
func TestNeverTwo(t *testing.T) {
	in(t, func(w *world) {
		w.backend(Options{}) // creates the directory
		for round := range rounds.Fewer(30, 6) {
			w.write("n.lock", foreign("n", "req_old", time.Now().Add(-time.Hour), 60))
			var holders atomic.Int32
			var all sync.WaitGroup
			for range 8 {
				b := w.backend(Options{Force: true, Audit: func(any) {}})
				all.Go(func() {
					_, ok, err := b.TryLock(w.Context(), "n", time.Minute)
					assert.Is(t, err, nil)
					if ok {
						holders.Add(1)
					}
				})
			}
			all.Wait()
			assert.Equal(t, holders.Load(), 1, "holders of round %d", round)
			w.left(0, "n.lock")
			assert.OK(t, os.Remove(w.path("n.lock")))
		}
	})
}

// TestSettle: while an acquirer settles, a script believes that it has the lock, and gets it: its mv
// has replaced ours, or has moved nothing, or its heartbeat of another request is about to replace ours, and its mv
// must find that. One that can't be read might be a live request's. A script that gives up, and a
// heartbeat of our own lock, take nothing.
func TestSettle(t *testing.T) {
	const ours = "our lock"
	other := func(string) string { return foreign("n", "req_1", time.Now(), 900) }
	for name, c := range map[string]struct {
		file    string // that a script writes
		text    func(ours string) string
		goes    time.Duration // when it removes the file, after the beginning; our second look is at 2*DefaultSettle
		lock    string
		remains []string
	}{
		"replaced":          {"n.lock", other, 0, "req_1", []string{"n.lock"}},
		"moved nothing":     {"n.lock.req_1.tmp", other, 0, "req_1", []string{"n.lock"}},
		"gives up":          {"n.lock.req_1.tmp", other, DefaultSettle * 7 / 4, ours, []string{"n.lock"}},
		"gives up late":     {"n.lock.req_1.tmp", other, DefaultSettle * 9 / 4, ours, []string{"n.lock"}},
		"heartbeat":         {"n.lock.heartbeat.tmp", other, 0, "req_1", []string{"n.lock", "n.lock.heartbeat.tmp"}},
		"heartbeat of ours": {"n.lock.heartbeat.tmp", func(ours string) string { return ours }, 0, ours, []string{"n.lock", "n.lock.heartbeat.tmp"}},
		"unreadable":        {"n.lock.req_1.tmp", func(string) string { return "" }, 0, "", []string{"n.lock.req_1.tmp"}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.backend(Options{})
				var text string
				time.AfterFunc(DefaultSettle/2, func() {
					text = c.text(w.read("n.lock"))
					w.write(c.file, text)
				})
				if c.goes > 0 {
					script := w.backend(Options{})
					time.AfterFunc(DefaultSettle*3/2, func() { // with the flock, so that nothing happens between our look and its end
						unlock, err := script.exclusive(w.Context())
						assert.OK(t, err)
						defer unlock()
						time.Sleep(c.goes - DefaultSettle*3/2)
						assert.OK(t, os.Remove(w.path(c.file)))
					})
				}
				if c.lock == ours {
					lockcheck.Acquire(w, b, "n", 0)
					w.left(1, c.remains...)
					return
				}
				held := w.refused(b, "n")
				assert.That(t, held.Request == c.lock && (held.Unreadable != "") == (c.lock == ""), "%+v", held)
				if c.lock != "" {
					assert.Equal(t, w.read("n.lock"), text, "the script's lock")
				}
				w.left(0, c.remains...)
			})
		})
	}
}

// TestAcquisitionFails: an acquirer that can't confirm its lock, whose context ends, or whose machine is
// suspended until the ttl is over, has nothing and leaves nothing.
func TestAcquisitionFails(t *testing.T) {
	const script = "n.lock.heartbeat.tmp"
	for name, c := range map[string]struct {
		happens func(w *world)
		limit   time.Duration
		want    error // nil is any
		remains []string
	}{
		"not confirmed": {func(w *world) {
			hook(w, &exchange, func(string, string) error { return syscall.EIO })
			w.write(script, foreign("n", "req_1", time.Now(), 900))
		}, time.Hour, syscall.EIO, []string{script}},
		"canceled":  {func(*world) {}, DefaultSettle / 2, context.DeadlineExceeded, nil},
		"suspended": {func(w *world) { w.clock.Leap.Add(int64(time.Hour)) }, time.Hour, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.backend(Options{})
				ctx, cancel := context.WithTimeout(w.Context(), c.limit)
				defer cancel()
				time.AfterFunc(DefaultSettle/2, func() { c.happens(w) })
				if _, ok, err := b.TryLock(ctx, "n", time.Minute); ok || err == nil || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("%v %v", ok, err)
				}
				w.left(0, c.remains...)
			})
		})
	}
}

// fickle is metadata that can be written until err is set.
type fickle struct{ err error }

func (f *fickle) MarshalJSON() ([]byte, error) { return []byte("1"), f.err }

// TestMetadataFails: an acquirer whose metadata can't be written any more has nothing and writes nothing, also if it
// steals or breaks a lock.
func TestMetadataFails(t *testing.T) {
	in(t, func(w *world) {
		metadata := new(fickle)
		b := w.backend(Options{Force: true, Metadata: map[string]any{"x": metadata}})
		old := foreign("old", "req_1", time.Now().Add(-time.Hour), 900)
		w.write("old.lock", old)
		metadata.err = syscall.ENOMEM
		for _, name := range []string{"new", "old"} {
			assert.Is(t, lockcheck.Fails(w.Context(), w, b, name), syscall.ENOMEM, name)
		}
		ok, err := b.Break(w.Context(), lockcheck.Seen(w, b, "old"), true)
		assert.That(t, !ok && errors.Is(err, syscall.ENOMEM), "%v, %v", ok, err)
		w.left(0, "old.lock")
		assert.Equal(t, w.read("old.lock"), old)
	})
}

// TestRivals: a temporary file of a request that isn't stale refuses an acquirer before it writes
// anything. A stale file, an old file that can't be read, and another lock's file don't.
func TestRivals(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for name, text := range map[string]string{
			"n.lock.req_old.tmp": foreign("n", "req_old", time.Now().Add(-time.Hour), 900), "n.lock.req_empty.tmp": "",
			"nn.lock.req_1.tmp": foreign("nn", "req_1", time.Now(), 900), "n-m.lock.heartbeat.tmp": foreign("n-m", "req_1", time.Now(), 900),
		} {
			w.write(name, text)
			if !strings.HasPrefix(name, "n.") {
				continue // it is new, and of another lock
			}
			old := time.Now().Add(-DefaultTTL - time.Second)
			assert.OK(t, os.Chtimes(w.path(name), old, old))
		}
		h := lockcheck.Acquire(w, b, "n", 0)
		lockcheck.Release(w, b, h)
		w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900))
		before := time.Now()
		if held := w.refused(b, "n"); held.Request != "req_1" || time.Now() != before {
			t.Errorf("%+v", held)
		}
	})
}
