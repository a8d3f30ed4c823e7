//go:build unix

package towerfleet

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// TestBreak: only a stale lock that is the one that was seen is broken, and lock_stolen is
// emitted. A live one is refused.
func TestBreak(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		see := func() *locking.Info {
			info, err := b.Inspect(w.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		w.write("n.lock", foreign("n", "req_1", time.Now(), 900))
		info := see()
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
		if len(w.events) > 0 || len(w.files()) != 1 {
			t.Fatalf("%v %q", w.events, w.files())
		}
		if ok, err := b.Break(w.Context(), see(), true); !ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
		likeDocument(t, w.events[0], `"event": "lock_stolen"`, 1)
		if ok, err := b.Break(w.Context(), info, true); ok || err != nil || len(w.files()) > 0 {
			t.Errorf("a free one: %v %v %q", ok, err, w.files())
		}
	})
}

// TestBreakMissesHeartbeat: a lock that gets a heartbeat while it is being broken stays.
func TestBreakMissesHeartbeat(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		w.write("n.lock", foreign("n", "req_1", time.Now().Add(-time.Hour), 900))
		info, err := b.Inspect(w.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		fresh, once := foreign("n", "req_1", time.Now(), 900), true
		hook(t, &exchange, func(a, b string) error {
			if once {
				w.write("n.lock", fresh)
			}
			once = false
			return swap(a, b)
		})
		if ok, err := b.Break(w.Context(), info, true); ok || err != nil || w.read("n.lock") != fresh || len(w.events) > 0 {
			t.Errorf("%v %v %v", ok, err, w.events)
		}
	})
}

// see inspects a lock that must be held.
func (w *world) see(b *Backend, name string) *locking.Info {
	w.Helper()
	info, err := b.Inspect(w.Context(), name)
	if err != nil || info == nil || info.Revision == "" {
		w.Fatalf("%s: %+v %v", name, info, err)
	}
	return info
}

// TestBreakMalformed: a person who has seen a file that can't be read can break its lock, and
// only if the file is as it was. The event has the hash of the file.
func TestBreakMalformed(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		for why, text := range malformed() {
			w.write("n.lock", text)
			seen := w.see(b, "n")
			w.write("n.lock", "{"+text)
			if ok, err := b.Break(w.Context(), seen, false); ok || err != nil || w.read("n.lock") != "{"+text {
				t.Errorf("%s: another one: %v %v", why, ok, err)
			}
			w.events = nil
			if ok, err := b.Break(w.Context(), w.see(b, "n"), false); !ok || err != nil || len(w.files()) > 0 {
				t.Errorf("%s: %v %v %q", why, ok, err, w.files())
			}
			likeDocument(t, w.events[0], `"event": "lock_stolen"`, 1)
			e := w.events[0].(Stolen)
			if len(text) < maxSize && e.PreviousLockHash != fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("{"+text))) ||
				e.Reason != "unreadable_lock_forced" {
				t.Errorf("%s: %+v", why, e)
			}
		}
	})
}

// TestBreakRace: a lock file that its creator completes while a person breaks it stays.
func TestBreakRace(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		w.write("n.lock", "")
		seen, whole := w.see(b, "n"), foreign("n", "req_1", time.Now(), 900)
		once := true
		hook(t, &exchange, func(a, b string) error {
			if once {
				w.write("n.lock", whole)
			}
			once = false
			return swap(a, b)
		})
		if ok, err := b.Break(w.Context(), seen, false); ok || err != nil || w.read("n.lock") != whole || len(w.events) > 0 {
			t.Errorf("%v %v %v", ok, err, w.events)
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
		if ok, err := b.Break(w.Context(), seen, false); ok || err != nil || len(w.files()) != 1 || len(w.events) > 0 {
			t.Errorf("another one: %v %v", ok, err)
		}
		ok, err := b.Break(w.Context(), w.see(b, "n"), false)
		if !ok || err != nil || len(w.files()) > 0 || len(w.events) != 1 {
			t.Errorf("%v %v %q", ok, err, w.files())
		}
	})
}

// TestBreakIrregular: what is no regular file isn't broken.
func TestBreakIrregular(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		if err := errors.Join(os.Mkdir(w.path("dir.lock"), 0o700), os.Symlink("none", w.path("link.lock"))); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"dir", "link"} {
			ok, err := b.Break(w.Context(), w.see(b, name), false)
			if ok || err == nil || !strings.Contains(err.Error(), w.path(name+".lock")) {
				t.Errorf("%s: %v %v", name, ok, err)
			}
		}
		if len(w.files()) != 2 || len(w.events) > 0 {
			t.Errorf("%q", w.files())
		}
	})
}
