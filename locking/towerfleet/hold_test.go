//go:build unix

package towerfleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/locking"
)

// TestHeartbeat: a heartbeat replaces the file in one step, changes last_heartbeat_at alone, and
// keeps what another program has added, byte for byte.
func TestHeartbeat(t *testing.T) {
	for name, err := range map[string]error{"swap": nil, "rename": syscall.EINVAL} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				if err != nil {
					hook(t, &exchange, func(string, string) error { return err })
				}
				b := w.backend(Options{})
				began := formatTime(time.Now())
				h := lockcheck.Acquire(w, b, "n", 0)
				text := strings.Replace(w.read("n.lock"), "{", `{ "x":[12345678901234567890.10,{"last_heartbeat_at":"x"}],`, 1)
				w.write("n.lock", text)
				before, _ := os.Stat(w.path("n.lock"))
				time.Sleep(interval(h.TTL()))
				lockcheck.Renew(w, b, h)
				want := strings.Replace(text, `"last_heartbeat_at": "`+began, `"last_heartbeat_at": "`+formatTime(time.Now()), 1)
				if got := w.read("n.lock"); got != want || got == text {
					t.Errorf("%s\nwant\n%s", got, want)
				}
				if after, _ := os.Stat(w.path("n.lock")); os.SameFile(before, after) {
					t.Error("written in place")
				}
				w.left(1, "n.lock")
			})
		})
	}
}

// TestHeartbeatOfGoneLock: a heartbeat never makes a lock anew, also if it vanishes between the
// look and the replacement.
func TestHeartbeatOfGoneLock(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for i, swap := range []func(a, b string) error{
			func(a, b string) error { os.Remove(b); return swap(a, b) },
			func(_, b string) error { os.Remove(b); return syscall.ENOSYS },
		} {
			h := lockcheck.Acquire(w, b, fmt.Sprint("n", i), 0)
			hook(t, &exchange, swap)
			for range 2 {
				assert.Is(t, b.Renew(w.Context(), h), locking.ErrLost)
			}
			w.left(i + 1)
		}
	})
}

// TestRenewAfterTTL: once the ttl has passed, a heartbeat writes nothing, because another program
// can be stealing the lock. Until then it can.
func TestRenewAfterTTL(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", time.Minute)
		for range 5 {
			time.Sleep(time.Minute - 2*DefaultSettle)
			lockcheck.Renew(w, b, h)
		}
		text := w.read("n.lock")
		time.Sleep(time.Minute)
		if err := b.Renew(w.Context(), h); !errors.Is(err, locking.ErrLost) || w.read("n.lock") != text {
			t.Errorf("%v", err)
		}
	})
}

// TestNoRivals: if all programs use this package, a temporary file of another request takes no lock away.
func TestNoRivals(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Settle: -1})
		h := lockcheck.Acquire(w, b, "n", 0)
		w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900))
		for range 3 {
			time.Sleep(interval(h.TTL()))
			lockcheck.Renew(w, b, h)
		}
	})
}

// TestShortTTL: a lock of one second, the shortest ttl, can be renewed.
func TestShortTTL(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		time.Sleep(999 * time.Millisecond)
		h := lockcheck.Acquire(w, b, "n", time.Second)
		for range 20 {
			time.Sleep(interval(h.TTL()))
			lockcheck.Renew(w, b, h)
		}
	})
}

// TestHeartbeatFails: a heartbeat that can't be written isn't a loss. The third interval in a row
// that fails emits heartbeat_failed, once; a success begins the count anew. Tries within an interval
// are one failure.
func TestHeartbeatFails(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", 0)
		w.events = nil
		fail := true
		hook(t, &exchange, func(a, b string) error {
			if fail {
				return syscall.EACCES
			}
			return swap(a, b)
		})
		for i, want := range []int{0, 0, 1, 1, 1, 1, 1, 2} {
			fail = i != 4
			for range 3 {
				err := b.Renew(w.Context(), h)
				assert.That(t, (err != nil) == fail && !errors.Is(err, locking.ErrLost), "%d: %v", i, err)
				time.Sleep(interval(h.TTL()) / 3)
			}
			assert.That(t, len(w.events) == want, "after %d: %v", i, w.events)
		}
		w.left(2, "n.lock")
		e := w.events[0].(audit.Record)
		assert.Equal(t, e, audit.Record{Event: "heartbeat_failed", RequestID: b.opts.RequestID, Timestamp: e.Timestamp, LockName: "n",
			LockPath: w.path("n.lock"), Failures: 3, Error: "EACCES: permission denied"})
	})
}

// TestRenewSeesRequestBeside: a heartbeat that finds the temporary file of another request for
// longer than Settle gives the lock to that request, and is lost. Until then that request's script can
// give up. A file that vanishes, one that can't be read and a heartbeat lose nothing.
func TestRenewSeesRequestBeside(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", 0)
		beat := func() {
			t.Helper()
			lockcheck.Renew(w, b, h)
			time.Sleep(interval(h.TTL()))
		}
		other := foreign("n", "req_1", time.Now().Add(time.Minute), 900)
		for name, text := range map[string]string{"n.lock.req_1.tmp": other, "n.lock.req_2.tmp": "", "n.lock.heartbeat.tmp": other} {
			w.write(name, text)
			beat()
			if text != other || name == "n.lock.heartbeat.tmp" {
				beat()
			}
			assert.OK(t, os.Remove(w.path(name)))
			beat()
		}
		w.write("n.lock.req_1.tmp", other)
		for range 4 {
			lockcheck.Renew(w, b, h)
			time.Sleep(DefaultSettle / 5)
		}
		time.Sleep(interval(h.TTL()))
		for range 2 {
			lockcheck.Lost(w, "renew", b.Renew(w.Context(), h))
		}
		lockcheck.Lost(w, "release", b.Release(w.Context(), h))
		assert.That(t, w.read("n.lock") == other, "%s", w.read("n.lock"))
		w.left(1, "n.lock")
	})
}

// TestRivalGetsNothing: if the lock can't be given to a request that believes that it has the lock, the lock is lost all
// the same.
func TestRivalGetsNothing(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", 0)
		w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900))
		lockcheck.Renew(w, b, h)
		time.Sleep(interval(h.TTL()))
		hook(t, &rename, func(string, string) error { return syscall.EIO })
		err := b.Renew(w.Context(), h)
		assert.That(t, errors.Is(err, locking.ErrLost) && errors.Is(err, syscall.EIO), "%v", err)
		rename = os.Rename
		lockcheck.Lost(w, "renew", b.Renew(w.Context(), h))
	})
}

// TestOwnLockIsWritten: a lock file of ours in which another program has written isn't renewed, released
// or written. It is lost if it has another request, whatever else is in it. One that can't be read isn't known to be.
func TestOwnLockIsWritten(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{RequestID: "req_1"})
		h := lockcheck.Acquire(w, b, "n", 0)
		other := strings.Replace(w.read("n.lock"), "req_1", "req_2", 1)
		other = strings.Replace(other, `"host_id": "`, `"host_id": "a\n\u001b[2J`, 1)
		for _, c := range []struct {
			text, says string
			lost       bool
		}{{"", w.path("n.lock"), false}, {other, "req_2", true}} {
			w.write("n.lock", c.text)
			for name, err := range map[string]error{"renew": b.Renew(w.Context(), h), "release": b.Release(w.Context(), h)} {
				if err == nil || errors.Is(err, locking.ErrLost) != c.lost || !strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\n\x1b") {
					t.Errorf("%s of %q: %v", name, c.text, err)
				}
			}
			assert.That(t, w.read("n.lock") == c.text, "it was written")
		}
	})
}

// TestExpiredRelease: a lock that expired, by either clock, but that no other program has stolen is
// removed, and the release reports that it was lost. It stays lost when the wall clock is set back.
func TestExpiredRelease(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := lockcheck.Acquire(w, b, "n", time.Minute)
		time.Sleep(time.Hour)
		assert.Is(t, b.Release(w.Context(), h), locking.ErrLost)
		h = lockcheck.Acquire(w, b, "n", time.Minute)
		for _, step := range []time.Duration{time.Hour, 0} {
			w.clock.Step.Store(int64(step))
			assert.Is(t, b.Renew(w.Context(), h), locking.ErrLost, step)
		}
		assert.Is(t, b.Release(w.Context(), h), locking.ErrLost)
		w.left(4)
	})
}

// TestRaces: another program writes the lock file between our look and our replacement of it. Its
// lock stays, and our heartbeat, release, steal or break is refused.
func TestRaces(t *testing.T) {
	stale := func(w *world) string { return foreign("n", "req_1", time.Now().Add(-time.Hour), 900) }
	lost := func(err error) bool { return errors.Is(err, locking.ErrLost) }
	for name, c := range map[string]struct {
		at   func(w *world) string // the lock file before, or "" for a lock of ours
		ours func(w *world, b *Backend, h locking.Handle, seen *locking.Info) bool
	}{
		"heartbeat": {nil, func(w *world, b *Backend, h locking.Handle, _ *locking.Info) bool {
			return lost(b.Renew(w.Context(), h)) && lost(b.Release(w.Context(), h))
		}},
		"release of a lock that is about to become stale": {nil, func(w *world, b *Backend, h locking.Handle, _ *locking.Info) bool {
			time.Sleep(time.Minute - 3*time.Second)
			return lost(b.Release(w.Context(), h))
		}},
		"steal": {stale, func(w *world, b *Backend, _ locking.Handle, _ *locking.Info) bool {
			return !w.refused(b, "n").Stale
		}},
		"break": {stale, func(w *world, b *Backend, _ locking.Handle, seen *locking.Info) bool {
			ok, err := b.Break(w.Context(), seen, true)
			return !ok && err == nil
		}},
		"break of a file that is being completed": {func(*world) string { return "{" }, func(w *world, b *Backend, _ locking.Handle, seen *locking.Info) bool {
			ok, err := b.Break(w.Context(), seen, false)
			return !ok && err == nil
		}},
	} {
		for _, swapping := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, swapping %v", name, swapping), func(t *testing.T) {
				in(t, func(w *world) {
					b := w.backend(Options{Force: true})
					var h locking.Handle
					if c.at == nil {
						h = lockcheck.Acquire(w, b, "n", time.Minute)
					} else {
						w.write("n.lock", c.at(w))
					}
					seen := lockcheck.Seen(w, b, "n")
					w.events = nil
					theirs := ""
					hook(t, &exchange, func(a, b string) error {
						if theirs == "" {
							theirs = foreign("n", "req_1", time.Now(), 900)
							w.write("n.lock", theirs)
						}
						if !swapping {
							return syscall.EINVAL
						}
						return swap(a, b)
					})
					assert.That(t, c.ours(w, b, h, seen), "it has the lock")
					assert.Equal(t, w.read("n.lock"), theirs)
					w.left(0, "n.lock")
				})
			})
		}
	}
}

// TestSwapsEnd: before another program's lock is put back, that program removes the lock file and a third one
// creates its own, or a script writes a heartbeat into our file. At the end the lock file is the third
// program's, or the other program's.
func TestSwapsEnd(t *testing.T) {
	second, third := foreign("n", "req_2", time.Now(), 900), foreign("n", "req_3", time.Now(), 900)
	for name, c := range map[string]struct {
		writes func(ours []byte) ([]byte, error)
		stays  string
	}{
		"a third lock":        {func([]byte) ([]byte, error) { return []byte(third), nil }, third},
		"a heartbeat of ours": {func(ours []byte) ([]byte, error) { return withHeartbeat(ours, time.Now().Add(time.Second)) }, second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.backend(Options{Force: true})
				w.write("n.lock", foreign("n", "req_1", time.Now().Add(-time.Hour), 900))
				swaps := 0
				hook(t, &exchange, func(a, b string) error {
					swaps++
					switch swaps {
					case 1:
						w.write("n.lock", second)
					case 2:
						text, err := c.writes([]byte(w.read("n.lock")))
						assert.Is(t, err, nil)
						w.write("n.lock", string(text))
					}
					return swap(a, b)
				})
				w.refused(b, "n")
				assert.Equal(t, w.read("n.lock"), c.stays)
				w.left(0, "n.lock")
			})
		})
	}
}

// TestSwappedIsRemoved: if the file that a swap has replaced is removed before it is read, the acquire fails, and says
// which file it was.
func TestSwappedIsRemoved(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		w.write("n.lock", foreign("n", "req_1", time.Now().Add(-time.Hour), 900))
		hook(t, &exchange, func(old, temp string) error {
			err := swap(old, temp)
			for _, name := range []string{old, temp} {
				if filepath.Base(name) != "n.lock" {
					assert.OK(t, os.Remove(name))
				}
			}
			return err
		})
		assert.Says(t, lockcheck.Fails(t.Context(), t, b, "n"), fs.ErrNotExist, "can't be read")
	})
}

// TestBreak: a lock is broken only if it is the one that was seen, and not if it is live. lock_stolen is emitted.
// So it is with a stale lock file, and with a temporary file that can't be read.
func TestBreak(t *testing.T) {
	for file, c := range map[string]struct {
		seen, then func() string
		stale      bool
	}{
		"n.lock": {func() string { return foreign("n", "req_2", time.Now().Add(-time.Hour), 901) },
			func() string { return foreign("n", "req_2", time.Now().Add(-time.Hour), 902) }, true},
		"n.lock.req_1.tmp": {func() string { return "" }, func() string { return "{" }, false},
	} {
		in(t, func(w *world) {
			b := w.backend(Options{})
			breaks := func(what string, seen *locking.Info, stale, want bool, class error) {
				t.Helper()
				ok, err := b.Break(w.Context(), seen, stale)
				assert.That(t, ok == want && errors.Is(err, class), "%s, %s: %v, %v", file, what, ok, err)
			}
			w.write(file, foreign("n", "req_1", time.Now(), 900))
			info := lockcheck.Seen(w, b, "n")
			breaks("a live one", info, false, false, ErrLive)
			breaks("a live one", info, true, false, nil)
			w.write(file, c.seen())
			seen := lockcheck.Seen(w, b, "n")
			if !c.stale {
				breaks("as stale", seen, true, false, nil)
			}
			w.write(file, c.then())
			breaks("another one", seen, c.stale, false, nil)
			w.left(0, file)
			seen = lockcheck.Seen(w, b, "n")
			breaks("the same", seen, c.stale, true, nil)
			breaks("a free one", seen, c.stale, false, nil)
			w.left(1)
			if c.stale {
				w.stolen("req_2", "stale_lock_forced")
			}
		})
	}
}

// TestBreakOfVanished: a script's temporary file that vanishes before Break removes it isn't broken, and no error. A
// lock file that vanishes is an error, because it was Break's own.
func TestBreakOfVanished(t *testing.T) {
	for file, fails := range map[string]bool{"n.lock.req_1.tmp": false, "n.lock": true} {
		in(t, func(w *world) {
			b := w.backend(Options{})
			text := ""
			if fails {
				text = foreign("n", "req_1", time.Now().Add(-time.Hour), 900)
			}
			w.write(file, text)
			seen := lockcheck.Seen(w, b, "n")
			hook(t, &remove, func(path string) error {
				assert.OK(t, os.Remove(path))
				return os.Remove(path)
			})
			ok, err := b.Break(w.Context(), seen, false)
			assert.That(t, !ok && errors.Is(err, fs.ErrNotExist) == fails && (err != nil) == fails, "%s: %v, %v", file, ok, err)
		})
	}
}
