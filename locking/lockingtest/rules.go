package lockingtest

import (
	"errors"

	"github.com/repolock/repolock/locking"
)

func freeIsAcquired(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew: %v", err)
	}
	f.release(f.a, h)
}

func contentionIsNoError(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	f.refused(f.b, f.key)
	f.refused(f.a, f.key) // nor has the holder it twice
	f.release(f.a, h)
}

func keysAreIndependent(f *fixture) {
	for i, key := range f.Keys {
		h := f.acquire(f.a, key, long)
		for _, other := range f.Keys[i+1:] {
			f.release(f.b, f.acquire(f.b, other, long))
			f.refused(f.b, key)
		}
		f.release(f.a, h)
	}
}

func badKeys(f *fixture) {
	for _, key := range f.BadKeys {
		if _, ok, err := f.a.TryLock(f.Context(), key, long); ok || !errors.Is(err, locking.ErrKey) {
			f.Errorf("key %q: acquired %v, %v, want ErrKey", key, ok, err)
		}
	}
}

func handles(f *fixture) {
	tokens := make(map[string]bool)
	for range 3 {
		h := f.acquire(f.a, f.key, long)
		if h.Key() != f.key || h.TTL() != long || h.Token() == "" || tokens[h.Token()] {
			f.Errorf("key %q, ttl %v, token %q after %v", h.Key(), h.TTL(), h.Token(), tokens)
		}
		tokens[h.Token()] = true
		f.release(f.a, h)
	}
}

func releaseFrees(f *fixture) {
	for range 3 {
		f.release(f.a, f.acquire(f.a, f.key, long))
		f.release(f.b, f.acquire(f.b, f.key, long))
	}
}

func doubleRelease(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	f.release(f.a, h)
	f.isLost("second release", f.a.Release(f.Context(), h))
	f.isLost("renew after release", f.a.Renew(f.Context(), h))
}

func zeroHandle(f *fixture) {
	var zero locking.Handle
	f.isLost("renew", f.a.Renew(f.Context(), zero))
	f.isLost("release", f.a.Release(f.Context(), zero))
	h := f.acquire(f.a, f.key, long)
	f.isLost("renew beside a lock", f.a.Renew(f.Context(), zero))
	f.isLost("release beside a lock", f.a.Release(f.Context(), zero))
	f.refused(f.b, f.key)
	f.release(f.a, h)
}

// replaced returns the handle of a, which is stale, because b has the lock now.
func (f *fixture) replaced() (stale, held locking.Handle) {
	f.Helper()
	stale = f.acquire(f.a, f.key, long)
	f.release(f.a, stale)
	return stale, f.acquire(f.b, f.key, long)
}

func staleNeverRenews(f *fixture) {
	stale, held := f.replaced()
	f.isLost("renew of a stale handle", f.a.Renew(f.Context(), stale))
	f.isLost("renew by the new holder", f.b.Renew(f.Context(), stale))
	f.refused(f.c, f.key)
	f.release(f.b, held)
}

func staleNeverReleases(f *fixture) {
	stale, held := f.replaced()
	f.isLost("release of a stale handle", f.a.Release(f.Context(), stale))
	f.isLost("release by the new holder", f.b.Release(f.Context(), stale))
	f.refused(f.c, f.key)
	if err := f.b.Renew(f.Context(), held); err != nil {
		f.Errorf("the new holder's renew: %v", err)
	}
	f.release(f.b, held)
}

func cleanupKeeps(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	for _, c := range []*client{f.a, f.b} {
		if err := c.Cleanup(f.Context()); err != nil {
			f.Errorf("cleanup: %v", err)
		}
	}
	f.refused(f.b, f.key)
	f.release(f.a, h)
	if err := f.a.Cleanup(f.Context()); err != nil {
		f.Errorf("cleanup of nothing: %v", err)
	}
	f.release(f.b, f.acquire(f.b, f.key, long))
}
