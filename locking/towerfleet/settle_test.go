//go:build unix

package towerfleet

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestSettleSeesReplacement: a lock that a script's mv replaces after the acquisition isn't
// acquired.
func TestSettleSeesReplacement(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		other := foreign("n", "req_1", time.Now(), 900)
		time.AfterFunc(DefaultSettle/2, func() { w.write("n.lock", other) })
		held := w.refused(b, "n")
		if held.record.RequestID != "req_1" || w.read("n.lock") != other || len(w.events) > 0 {
			t.Errorf("%v %v", held, w.events)
		}
	})
}

// TestSettleYields: a script whose mv has moved nothing believes that it has the lock. It gets it.
func TestSettleYields(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		other := foreign("n", "req_1", time.Now(), 900)
		time.AfterFunc(DefaultSettle/2, func() { w.write("n.lock.req_1.tmp", other) })
		held := w.refused(b, "n")
		if files := w.files(); held.record.RequestID != "req_1" || w.read("n.lock") != other || len(files) != 1 || len(w.events) > 0 {
			t.Errorf("%v %q %v", held, files, w.events)
		}
	})
}

// TestSettleWaitsForLoser: a script that gives up removes its temporary file, and our lock stays.
func TestSettleWaitsForLoser(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		time.AfterFunc(DefaultSettle/2, func() { w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900)) })
		time.AfterFunc(DefaultSettle*3/2, func() { os.Remove(w.path("n.lock.req_1.tmp")) })
		w.acquire(b, "n", 0)
	})
}

// TestSettleHeartbeat: a script's heartbeat of another request is about to replace our lock, so
// that request has it; its own mv finds its file. One of our own lock is no rival.
func TestSettleHeartbeat(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		other := foreign("n", "req_1", time.Now(), 900)
		time.AfterFunc(DefaultSettle/2, func() { w.write("n.lock.heartbeat.tmp", other) })
		w.refused(b, "n")
		if w.read("n.lock") != other || w.read("n.lock.heartbeat.tmp") != other {
			t.Error(w.read("n.lock"))
		}
		time.AfterFunc(DefaultSettle/2, func() { w.write("m.lock.heartbeat.tmp", w.read("m.lock")) })
		w.acquire(b, "m", 0)
	})
}

// TestSettleUnreadable: a temporary file that can't be read might be a live request's: our lock
// is removed, and the file stays.
func TestSettleUnreadable(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		time.AfterFunc(DefaultSettle/2, func() { w.write("n.lock.req_1.tmp", "") })
		held := w.refused(b, "n")
		if files := w.files(); held.Trouble == "" || len(files) != 1 || files[0] != "n.lock.req_1.tmp" {
			t.Errorf("%v %q", held, files)
		}
	})
}

// TestRivals: a temporary file of a request that isn't stale refuses an acquirer before it writes
// anything. A stale one, an old one that can't be read, and those of other names don't.
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
			if err := os.Chtimes(w.path(name), old, old); err != nil {
				t.Fatal(err)
			}
		}
		h := w.acquire(b, "n", 0)
		if err := b.Release(w.Context(), h); err != nil {
			t.Fatal(err)
		}
		w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900))
		before := time.Now()
		if held := w.refused(b, "n"); held.record.RequestID != "req_1" || time.Now() != before {
			t.Errorf("%v", held)
		}
		if info, err := b.Inspect(w.Context(), "n"); err != nil || info == nil || !strings.Contains(info.Holder, "req_1") {
			t.Errorf("%+v %v", info, err)
		}
	})
}

// TestRivalNames: the name of a file doesn't break the line of a message.
func TestRivalNames(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		w.write("n.lock.a\n\x1b[2Jb.tmp", "")
		if held := w.refused(b, "n"); strings.ContainsAny(held.Error(), "\n\x1b") {
			t.Errorf("%q", held.Error())
		}
	})
}

// TestSettleFails: an acquirer that can't confirm its lock leaves nothing behind.
func TestSettleFails(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		hook(t, &exchange, func(string, string) error { return syscall.EIO })
		time.AfterFunc(DefaultSettle/2, func() { w.write("n.lock.heartbeat.tmp", foreign("n", "req_1", time.Now(), 900)) })
		if _, ok, err := b.TryLock(w.Context(), "n", 0); ok || !errors.Is(err, syscall.EIO) {
			t.Errorf("%v %v", ok, err)
		}
		if files := w.files(); len(files) != 1 || files[0] != "n.lock.heartbeat.tmp" {
			t.Errorf("%q", files)
		}
	})
}

// TestCanceledAcquisition: an acquirer whose context ends leaves nothing behind.
func TestCanceledAcquisition(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		ctx, cancel := context.WithTimeout(w.Context(), DefaultSettle/2)
		defer cancel()
		if _, ok, err := b.TryLock(ctx, "n", 0); ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v %v", ok, err)
		}
		if files := w.files(); len(files) > 0 || len(w.events) > 0 {
			t.Errorf("%q %v", files, w.events)
		}
	})
}

// leaping is a clock that a suspend of the machine makes leap.
type leaping struct {
	bubble
	by *atomic.Int64
}

func (l leaping) Elapsed() time.Duration { return l.bubble.Elapsed() + time.Duration(l.by.Load()) }

// TestSuspendedAcquisition: an acquirer that its machine suspends until the ttl is over has
// nothing, and leaves nothing behind.
func TestSuspendedAcquisition(t *testing.T) {
	in(t, func(w *world) {
		c := leaping{bubble{time.Now()}, new(atomic.Int64)}
		b := w.backend(Options{Clock: c})
		time.AfterFunc(DefaultSettle/2, func() { c.by.Store(int64(time.Hour)) })
		if _, ok, err := b.TryLock(w.Context(), "n", time.Minute); ok || err == nil {
			t.Errorf("%v %v", ok, err)
		}
		if files := w.files(); len(files) > 0 || len(w.events) > 0 {
			t.Errorf("%q %v", files, w.events)
		}
	})
}
