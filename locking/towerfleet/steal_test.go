//go:build unix

package towerfleet

import (
	"syscall"
	"testing"
	"time"
)

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
