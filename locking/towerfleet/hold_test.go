//go:build unix

package towerfleet

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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
				h := w.acquire(b, "n", 0)
				text := strings.Replace(w.read("n.lock"), "{", `{ "x":[12345678901234567890.10,{"last_heartbeat_at":"x"}],`, 1)
				w.write("n.lock", text)
				before, _ := os.Stat(w.path("n.lock"))
				time.Sleep(Interval(h.TTL()))
				if err := b.Renew(w.Context(), h); err != nil {
					t.Fatal(err)
				}
				want := strings.Replace(text, `"last_heartbeat_at": "`+began, `"last_heartbeat_at": "`+formatTime(time.Now()), 1)
				if got := w.read("n.lock"); got != want || got == text {
					t.Errorf("%s\nwant\n%s", got, want)
				}
				if after, _ := os.Stat(w.path("n.lock")); os.SameFile(before, after) || len(w.files()) != 1 {
					t.Errorf("written in place, or files are left: %q", w.files())
				}
			})
		})
	}
}

// TestHeartbeatRacesSteal: a lock that another program steals between a heartbeat's look and its
// replacement stays that program's, and the heartbeat reports the loss.
func TestHeartbeatRacesSteal(t *testing.T) {
	for name, swapping := range map[string]bool{"swap": true, "rename": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.backend(Options{})
				h := w.acquire(b, "n", 0)
				thief := foreign("n", "req_thief", time.Now(), 900)
				stolen := false
				hook(t, &exchange, func(a, b string) error {
					if !stolen {
						w.write("n.lock", thief)
					}
					stolen = true
					if !swapping {
						return syscall.EINVAL
					}
					return swap(a, b)
				})
				if err := b.Renew(w.Context(), h); !errors.Is(err, locking.ErrLost) {
					t.Error(err)
				}
				if err := b.Release(w.Context(), h); !errors.Is(err, locking.ErrLost) {
					t.Error(err)
				}
				if got := w.read("n.lock"); got != thief || len(w.files()) != 1 {
					t.Errorf("%s %q", got, w.files())
				}
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
			h := w.acquire(b, fmt.Sprint("n", i), 0)
			hook(t, &exchange, swap)
			for range 2 {
				if err := b.Renew(w.Context(), h); !errors.Is(err, locking.ErrLost) {
					t.Error(err)
				}
			}
			if files := w.files(); len(files) > 0 {
				t.Errorf("%q", files)
			}
		}
	})
}

// TestRenewAfterTTL: once the ttl has passed, a heartbeat writes nothing, because another program
// can be stealing the lock. Until then it can.
func TestRenewAfterTTL(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", time.Minute)
		for range 5 {
			time.Sleep(time.Minute - 2*DefaultSettle)
			if err := b.Renew(w.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		text := w.read("n.lock")
		time.Sleep(time.Minute)
		if err := b.Renew(w.Context(), h); !errors.Is(err, locking.ErrLost) || w.read("n.lock") != text {
			t.Errorf("%v", err)
		}
	})
}

// TestShortTTL: a lock of one second, the shortest ttl, can be renewed.
func TestShortTTL(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		time.Sleep(999 * time.Millisecond)
		h := w.acquire(b, "n", time.Second)
		for range 20 {
			time.Sleep(Interval(h.TTL()))
			if err := b.Renew(w.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestHeartbeatFails: a heartbeat that can't be written isn't a loss. The third in a row emits
// heartbeat_failed, once; a success begins the count anew.
func TestHeartbeatFails(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
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
			err := b.Renew(w.Context(), h)
			if (err != nil) != fail || errors.Is(err, locking.ErrLost) {
				t.Errorf("%d: %v", i, err)
			}
			if len(w.events) != want {
				t.Errorf("after %d: %v", i, w.events)
			}
		}
		if e := w.events[0].(HeartbeatFailed); e.Event.Event != "heartbeat_failed" || e.Error != "EACCES: permission denied" || e.Failures != 3 {
			t.Errorf("%+v", e)
		}
		if len(w.files()) != 1 {
			t.Errorf("%q", w.files())
		}
	})
}
