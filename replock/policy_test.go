package replock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// TestNoIntentBelowAnother: a key that the policy for shared locks lets its owner write is a
// shared lock or nothing. It is never an intent, which would keep backups out, too.
func TestNoIntentBelowAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		for _, key := range []string{"lock.intent/lock.shared/x", "lock.intent/a/lock.shared/x"} {
			w.put("index/"+key, foreign(time.Now(), false))
		}
		m := w.machine()
		for _, mode := range []Mode{Shared, Exclusive} {
			k, err := m.acquire(t.Context(), mode, "x")
			mustLock(t, k, err).Release(t.Context())
		}
		w.put("index/lock.shared/a/b", foreign(time.Now(), true)) // another client's name, perhaps
		if k, err := m.Exclusive(t.Context(), "x"); err == nil {
			t.Error("a shared lock whose name has a slash isn't seen")
			k.Release(t.Context())
		}
	})
}

// TestKeysOfSharedLocksAreNoOtherLocks: an object under a name's other keys that a policy for
// shared locks alone allows is no lock.
func TestKeysOfSharedLocksAreNoOtherLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		w.put("index/locks/n/lock.exclusive/lock.shared/x", []byte("x"))
		w.put("index/locks/n/lock.intent/lock.shared/x", []byte("x"))
		for _, mode := range []Mode{Shared, Exclusive} {
			k, err := w.machine(func(o *Options) { o.Name = "n" }).acquire(t.Context(), mode, "x")
			mustLock(t, k, err).Release(t.Context())
		}
	})
}
