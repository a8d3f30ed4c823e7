//go:build unix

package towerfleet

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// TestUnreadableOwnLock: a lock file of ours that became malformed isn't written, renewed or
// released. It isn't known to be lost.
func TestUnreadableOwnLock(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
		w.write("n.lock", "")
		for name, err := range map[string]error{"renew": b.Renew(w.Context(), h), "release": b.Release(w.Context(), h)} {
			if err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), w.path("n.lock")) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if w.read("n.lock") != "" {
			t.Error("it was written")
		}
	})
}

// TestRelease: a release removes the file, and emits lock_released in the shapes of sections 8.1
// and 8.2. It happens once.
func TestRelease(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for i, result := range []Result{Success, Failure("deploy_manifests")} {
			h := w.acquire(b, "n", time.Minute)
			time.Sleep(40 * time.Second)
			w.events = nil
			if err := b.ReleaseAfter(w.Context(), h, result); err != nil {
				t.Fatal(err)
			}
			if err := b.Release(w.Context(), h); !errors.Is(err, locking.ErrLost) {
				t.Error(err)
			}
			if files := w.files(); len(files) > 0 || len(w.events) != 1 || len(b.held) > 0 {
				t.Fatalf("%q %v", files, w.events)
			}
			likeDocument(t, w.events[0], `"event": "lock_released"`, i+1)
			if e := w.events[0].(Released); e.HeldDurationSeconds != 41 || e.Result != []string{"success", "failure"}[i] {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestReleaseFails: a file that can't be removed emits lock_release_failed, and the handle can be
// released again.
func TestReleaseFails(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
		w.events = nil
		hook(t, &remove, func(path string) error { return &os.PathError{Op: "remove", Path: path, Err: syscall.EACCES} })
		if err := b.Release(w.Context(), h); err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), w.path("n.lock")) {
			t.Error(err)
		}
		likeDocument(t, w.events[0], `"event": "lock_release_failed"`, 1)
		if e := w.events[0].(ReleaseFailed); e.Error != "EACCES: permission denied" {
			t.Errorf("%+v", e)
		}
		remove = os.Remove
		if err := b.Release(w.Context(), h); err != nil || len(w.files()) > 0 {
			t.Error(err)
		}
	})
}

// TestStaleHandle: a handle whose lock was stolen neither renews nor releases the new one, also if
// both are of one request.
func TestStaleHandle(t *testing.T) {
	in(t, func(w *world) {
		for _, thief := range []string{"req_1", "req_2"} {
			first, second := w.backend(Options{RequestID: "req_1"}), w.backend(Options{RequestID: thief, Force: true})
			old := w.acquire(first, "n", time.Minute)
			time.Sleep(2 * time.Minute)
			h := w.acquire(second, "n", time.Hour)
			text := w.read("n.lock")
			for name, err := range map[string]error{"renew": first.Renew(w.Context(), old), "release": first.Release(w.Context(), old),
				"another handle": second.Release(w.Context(), locking.NewHandle("n", time.Hour)), "none": second.Release(w.Context(), locking.Handle{})} {
				if !errors.Is(err, locking.ErrLost) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if w.read("n.lock") != text {
				t.Error("the new lock was written")
			}
			if err := second.Release(w.Context(), h); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestOwnerIsRequest: a lock file of another request is another's, whatever else is in it.
func TestOwnerIsRequest(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{RequestID: "req_1"})
		h := w.acquire(b, "n", 0)
		text := strings.Replace(w.read("n.lock"), "req_1", "req_2", 1)
		text = strings.Replace(text, `"host_id": "`, `"host_id": "a\n\u001b[2J`, 1)
		w.write("n.lock", text)
		for name, err := range map[string]error{"renew": b.Renew(w.Context(), h), "release": b.Release(w.Context(), h)} {
			if !errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "req_2") || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if w.read("n.lock") != text {
			t.Error("it was written")
		}
	})
}

// TestExpiredRelease: a lock that expired but that no other program has stolen is removed, and
// the release reports that it was lost.
func TestExpiredRelease(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", time.Minute)
		time.Sleep(time.Hour)
		if err := b.Release(w.Context(), h); !errors.Is(err, locking.ErrLost) || len(w.files()) > 0 {
			t.Errorf("%v %q", err, w.files())
		}
	})
}

// TestReleaseRefreshes: a lock that is about to become stale gets a heartbeat before its removal;
// if another program steals it before that, its lock stays.
func TestReleaseRefreshes(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", time.Minute)
		time.Sleep(time.Minute - 3*time.Second)
		thief := foreign("n", "req_thief", time.Now(), 900)
		once := true
		hook(t, &exchange, func(a, b string) error {
			if once {
				w.write("n.lock", thief)
			}
			once = false
			return swap(a, b)
		})
		if err := b.Release(w.Context(), h); !errors.Is(err, locking.ErrLost) || w.read("n.lock") != thief {
			t.Errorf("%v", err)
		}
	})
}

// TestLostStaysLost: a lock that expired by the wall clock stays lost when that clock is set back.
func TestLostStaysLost(t *testing.T) {
	in(t, func(w *world) {
		c := set{bubble{time.Now()}, new(atomic.Int64)}
		b := w.backend(Options{Clock: c})
		h := w.acquire(b, "n", time.Minute)
		for _, by := range []time.Duration{time.Hour, 0} {
			c.by.Store(int64(by))
			if err := b.Renew(w.Context(), h); !errors.Is(err, locking.ErrLost) {
				t.Errorf("%s: %v", by, err)
			}
		}
		if err := b.Release(w.Context(), h); !errors.Is(err, locking.ErrLost) || len(w.files()) > 0 {
			t.Errorf("%v %q", err, w.files())
		}
	})
}

// set is a clock whose wall clock can be set.
type set struct {
	bubble
	by *atomic.Int64
}

func (s set) Now() time.Time { return s.bubble.Now().Add(time.Duration(s.by.Load())) }
