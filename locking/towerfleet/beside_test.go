//go:build unix

package towerfleet

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
)

// TestRenewSeesRequestBeside: a heartbeat that finds the temporary file of another request for
// longer than Settle gives the lock to that request, and is lost. A file that vanishes, one that
// can't be read and a heartbeat lose nothing.
func TestRenewSeesRequestBeside(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
		beat := func() {
			t.Helper()
			if err := b.Renew(w.Context(), h); err != nil {
				t.Fatal(err)
			}
			time.Sleep(Interval(h.TTL()))
		}
		other := foreign("n", "req_1", time.Now().Add(time.Minute), 900)
		for name, text := range map[string]string{"n.lock.req_1.tmp": other, "n.lock.req_2.tmp": "", "n.lock.heartbeat.tmp": other} {
			w.write(name, text)
			beat()
			if text != other || name == "n.lock.heartbeat.tmp" {
				beat()
			}
			if err := os.Remove(w.path(name)); err != nil {
				t.Fatal(err)
			}
			beat()
		}
		w.write("n.lock.req_1.tmp", other)
		beat()
		for range 2 {
			if err := b.Renew(w.Context(), h); !errors.Is(err, locking.ErrLost) {
				t.Errorf("%v", err)
			}
		}
		if err := b.Release(w.Context(), h); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%v", err)
		}
		if files := w.files(); w.read("n.lock") != other || len(files) != 1 {
			t.Errorf("%q %s", files, w.read("n.lock"))
		}
	})
}

// TestRenewGivesTime: a temporary file that is there for less than Settle is that of a script
// that may give up.
func TestRenewGivesTime(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{})
		h := w.acquire(b, "n", 0)
		w.write("n.lock.req_1.tmp", foreign("n", "req_1", time.Now(), 900))
		for range 4 {
			if err := b.Renew(w.Context(), h); err != nil {
				t.Error(err)
			}
			time.Sleep(DefaultSettle / 5)
		}
	})
}
