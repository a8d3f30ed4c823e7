//go:build unix

package towerfleet

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

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
						h = w.acquire(b, "n", time.Minute)
					} else {
						w.write("n.lock", c.at(w))
					}
					seen := w.see(b, "n")
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
					if !c.ours(w, b, h, seen) {
						t.Error("it has the lock")
					}
					if got := w.read("n.lock"); got != theirs {
						t.Errorf("%s", got)
					}
					w.left(0, "n.lock")
				})
			})
		}
	}
}

// TestSwapsEnd: while another's lock is being put back, its holder removes what it takes for its
// lock, and a third program creates one; or a script writes a heartbeat into ours. The other program's lock is in
// place at the end.
func TestSwapsEnd(t *testing.T) {
	second, third := foreign("n", "req_2", time.Now(), 900), foreign("n", "req_3", time.Now(), 900)
	for name, c := range map[string]struct {
		writes func(ours []byte) ([]byte, error)
		stays  string
	}{
		"a third lock":        {func([]byte) ([]byte, error) { return []byte(third), nil }, third},
		"a heartbeat of ours": {func(ours []byte) ([]byte, error) { return beaten(ours, time.Now().Add(time.Second)) }, second},
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
						if err != nil {
							t.Error(err)
						}
						w.write("n.lock", string(text))
					}
					return swap(a, b)
				})
				w.refused(b, "n")
				if got := w.read("n.lock"); got != c.stays {
					t.Errorf("%s", got)
				}
				w.left(0, "n.lock")
			})
		})
	}
}

// TestBreak: only a stale lock that is the one that was seen is broken, and lock_stolen is
// emitted. A live one is refused.
func TestBreak(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		w.write("n.lock", foreign("n", "req_1", time.Now(), 900))
		info := w.see(b, "n")
		ok, err := b.Break(w.Context(), info, false)
		if ok || !errors.Is(err, ErrLive) || !strings.Contains(err.Error(), "req_1") {
			t.Errorf("a live one: %v %v", ok, err)
		}
		if ok, err := b.Break(w.Context(), info, true); ok || err != nil {
			t.Errorf("a live one: %v %v", ok, err)
		}
		time.Sleep(time.Hour)
		w.write("n.lock", foreign("n", "req_2", time.Now().Add(-time.Hour), 900))
		if ok, err := b.Break(w.Context(), info, true); ok || err != nil {
			t.Errorf("another one: %v %v", ok, err)
		}
		w.left(0, "n.lock")
		if ok, err := b.Break(w.Context(), w.see(b, "n"), true); !ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
		if ok, err := b.Break(w.Context(), info, true); ok || err != nil {
			t.Errorf("a free one: %v %v", ok, err)
		}
		w.left(1)
		if e := w.events[0].(Stolen); e.Reason != "stale_lock_forced" || e.PreviousLock.RequestID != "req_2" {
			t.Errorf("%+v", e)
		}
	})
}

// TestBreakTemporary: a temporary file that can't be read holds a lock, and can be broken as one.
// That of a live request can't.
func TestBreakTemporary(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900))
		if ok, err := b.Break(w.Context(), w.see(b, "n"), false); ok || !errors.Is(err, ErrLive) {
			t.Errorf("a live one: %v %v", ok, err)
		}
		w.write("n.lock.req_1.tmp", "")
		seen := w.see(b, "n")
		if ok, err := b.Break(w.Context(), seen, true); ok || err != nil {
			t.Errorf("as stale: %v %v", ok, err)
		}
		w.write("n.lock.req_1.tmp", "{")
		if ok, err := b.Break(w.Context(), seen, false); ok || err != nil {
			t.Errorf("another one: %v %v", ok, err)
		}
		w.left(0, "n.lock.req_1.tmp")
		if ok, err := b.Break(w.Context(), w.see(b, "n"), false); !ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
		w.left(1)
	})
}
