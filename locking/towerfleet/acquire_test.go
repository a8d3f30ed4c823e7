//go:build unix

package towerfleet

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestCreationIsAtomic: the file is complete at the moment when it appears, and it never
// replaces one.
func TestCreationIsAtomic(t *testing.T) {
	in(t, func(w *world) {
		hook(t, &link, func(temp, path string) error {
			if _, err := os.Lstat(path); err == nil {
				t.Error("it is there before the link")
			}
			if f, err := read(temp, "n"); err != nil || f == nil || f.record == nil {
				t.Errorf("incomplete: %+v %v", f, err)
			}
			return os.Link(temp, path)
		})
		w.acquire(w.backend(Options{}), "n", 0)
		if files := w.files(); len(files) != 1 {
			t.Errorf("%q", files)
		}
		other := foreign("m", "req_other", time.Now(), 900)
		hook(t, &link, func(temp, path string) error { // another program creates it after our look
			w.write("m.lock", other)
			return os.Link(temp, path)
		})
		b := w.backend(Options{})
		w.refused(b, "m")
		if got := w.read("m.lock"); got != other {
			t.Errorf("replaced by %s", got)
		}
	})
}

// TestNoLinks: a file system without hard links creates a lock exclusively, too.
func TestNoLinks(t *testing.T) {
	in(t, func(w *world) {
		other := foreign("m", "req_other", time.Now(), 900)
		hook(t, &link, func(_, path string) error {
			if strings.HasSuffix(path, "m.lock") {
				w.write("m.lock", other)
			}
			return syscall.EPERM
		})
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
		w.refused(b, "n")
		w.refused(b, "m")
		if got := w.read("m.lock"); got != other {
			t.Errorf("replaced by %s", got)
		}
		if err := b.Release(w.Context(), h); err != nil {
			t.Error(err)
		}
	})
}

// TestNeverTwo: of many that acquire at once, each with its own Backend, exactly one succeeds:
// a free lock, and a stale one.
func TestNeverTwo(t *testing.T) {
	in(t, func(w *world) {
		for round := range 60 {
			if round%2 == 1 {
				w.write("n.lock", foreign("n", "req_old", time.Now().Add(-time.Hour), 60))
			}
			var holders atomic.Int32
			var all sync.WaitGroup
			for range 8 {
				b := w.backend(Options{Force: true, Audit: func(any) {}})
				all.Go(func() {
					_, ok, err := b.TryLock(w.Context(), "n", time.Minute)
					if err != nil {
						t.Error(err)
					}
					if ok {
						holders.Add(1)
					}
				})
			}
			all.Wait()
			if n := holders.Load(); n != 1 {
				t.Fatalf("round %d: %d holders", round, n)
			}
			if files := w.files(); len(files) != 1 {
				t.Fatalf("%q", files)
			}
			if err := os.Remove(w.path("n.lock")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestBlocked: a live lock is refused with the holder's fields, as JSON in the shape of section
// 4.4, also with Force.
func TestBlocked(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		text := foreign("n", "req_1", time.Now(), 900)
		w.write("n.lock", text)
		held := w.refused(b, "n")
		likeDocument(t, held, `"error": "lock_blocked"`, 1)
		out, _ := json.Marshal(held)
		var got struct {
			Name string    `json:"lock_name"`
			By   blockedBy `json:"held_by"`
		}
		at := formatTime(time.Now())
		if err := json.Unmarshal(out, &got); err != nil || got.Name != "n" || got.By != (blockedBy{"req_1", "claude-code", "deploy-app", at, at}) {
			t.Errorf("%s", out)
		}
		for _, part := range []string{"req_1", "claude-code", "deploy-app", "tower-01", w.path("n.lock")} {
			if !strings.Contains(held.Error(), part) {
				t.Errorf("no %s in %q", part, held)
			}
		}
		if w.read("n.lock") != text || len(w.events) > 0 {
			t.Errorf("%s %v", w.read("n.lock"), w.events)
		}
	})
}

// TestStaleIsRefused: without Force a stale lock is refused with the JSON of section 6.3, and is
// left as it is.
func TestStaleIsRefused(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		beat := time.Now().Add(-30 * time.Minute)
		text := foreign("n", "req_1", beat, 900)
		w.write("n.lock", text)
		held := w.refused(b, "n")
		likeDocument(t, held, `"error": "lock_stale"`, 1)
		out, _ := json.Marshal(held)
		for _, part := range []string{`"age_seconds":1800`, `"ttl_seconds":900`, `"stale_since":"` + formatTime(beat.Add(15*time.Minute)), `"pid":12345`} {
			if !strings.Contains(string(out), part) {
				t.Errorf("no %s in %s", part, out)
			}
		}
		if !strings.Contains(held.Error(), "--force-lock") || w.read("n.lock") != text {
			t.Errorf("%v", held)
		}
	})
}

// TestSteal: with Force a stale lock is stolen, with the events lock_stolen and lock_acquired.
func TestSteal(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true, RequestID: "req_new"})
		w.write("n.lock", foreign("n", "req_old", time.Now().Add(-time.Hour), 900))
		w.acquire(b, "n", 0)
		if len(w.events) != 2 {
			t.Fatalf("%v", w.events)
		}
		likeDocument(t, w.events[0], `"event": "lock_stolen"`, 1)
		likeDocument(t, w.events[1], `"event": "lock_acquired"`, 1)
		e := w.events[0].(Stolen)
		if e.RequestID != "req_new" || e.PreviousLock.RequestID != "req_old" || len(e.PreviousLockHash) != len("sha256:")+64 {
			t.Errorf("%+v", e)
		}
		if files := w.files(); len(files) != 1 {
			t.Errorf("%q", files)
		}
	})
}

// TestStealMissesHeartbeat: a stale lock that gets a heartbeat between the look and the steal is
// not stolen, and is put back.
func TestStealMissesHeartbeat(t *testing.T) {
	for name, swapping := range map[string]bool{"swap": true, "rename": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.backend(Options{Force: true})
				w.write("n.lock", foreign("n", "req_1", time.Now().Add(-time.Hour), 900))
				fresh := foreign("n", "req_1", time.Now(), 900)
				once := true
				hook(t, &exchange, func(a, b string) error {
					if once {
						w.write("n.lock", fresh)
					}
					once = false
					if !swapping {
						return syscall.EINVAL
					}
					return swap(a, b)
				})
				w.refused(b, "n")
				if got := w.read("n.lock"); got != fresh || len(w.files()) != 1 || len(w.events) > 0 {
					t.Errorf("%s, %q, %v", got, w.files(), w.events)
				}
			})
		})
	}
}

// TestSwapsEnd: while another's lock is being put back, its holder removes what it takes for its
// lock, and a third program creates one. The third one's lock is in place at the end.
func TestSwapsEnd(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		w.write("n.lock", foreign("n", "req_1", time.Now().Add(-time.Hour), 900))
		third := foreign("n", "req_3", time.Now(), 900)
		swaps := 0
		hook(t, &exchange, func(a, b string) error {
			swaps++
			switch swaps {
			case 1:
				w.write("n.lock", foreign("n", "req_2", time.Now(), 900))
			case 2:
				w.write("n.lock", third)
			}
			return swap(a, b)
		})
		w.refused(b, "n")
		if got := w.read("n.lock"); got != third || len(w.files()) != 1 {
			t.Errorf("%s, %q", got, w.files())
		}
	})
}

// TestSwapsEndAtHeartbeat: while another's lock is being put back, a script writes a heartbeat into
// ours. The other's lock is in place at the end.
func TestSwapsEndAtHeartbeat(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		w.write("n.lock", foreign("n", "req_1", time.Now().Add(-time.Hour), 900))
		second := foreign("n", "req_2", time.Now(), 900)
		swaps := 0
		hook(t, &exchange, func(a, b string) error {
			swaps++
			switch swaps {
			case 1:
				w.write("n.lock", second)
			case 2:
				ours, err := beaten([]byte(w.read("n.lock")), time.Now().Add(time.Second))
				if err != nil {
					t.Error(err)
				}
				w.write("n.lock", string(ours))
			}
			return swap(a, b)
		})
		w.refused(b, "n")
		if got := w.read("n.lock"); got != second || len(w.files()) != 1 {
			t.Errorf("%s, %q", got, w.files())
		}
	})
}

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
