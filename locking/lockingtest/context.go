package lockingtest

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/locking"
)

func endedContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		if _, ok, err := f.a.TryLock(ctx, f.key, long); ok || err == nil {
			f.Errorf("acquired %v, %v", ok, err)
		}
	})
	f.release(f.b, f.acquire(f.b, f.key, long))
}

func endedContextRenews(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		if err := f.a.Renew(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
			f.Errorf("renew: %v", err)
		}
	})
	f.refused(f.b, f.key)
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew afterwards: %v", err)
	}
	f.release(f.a, h)
}

// endedContextReleases checks that a release that gives up at once says so, can be repeated,
// and isn't mistaken for a loss.
func endedContextReleases(f *fixture) {
	h := f.acquire(f.a, f.key, long)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		err := f.a.Release(ctx, h)
		if errors.Is(err, locking.ErrLost) {
			f.Errorf("release of a held lock: %v", err)
		}
		if err == nil {
			return
		}
		// It can have been released nevertheless.
		if err := f.a.Release(f.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) {
			f.Errorf("release afterwards: %v", err)
		}
	})
	// A server can take a moment to notice that the backend has closed its connection. The ttl
	// must not be over before.
	for limit := time.Now().Add(min(f.Limit, long/2)); ; {
		h, ok, err := f.b.TryLock(f.Context(), f.key, long)
		if ok {
			f.release(f.b, h)
			return
		}
		if err != nil || time.Now().After(limit) {
			f.Fatalf("still held after its release: %v", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// contextEndsMeanwhile ends the context of TryLock at any of its steps.
func contextEndsMeanwhile(f *fixture) {
	for i := range 20 {
		ctx, cancel := context.WithCancel(f.Context())
		go func() {
			for range i * i {
				dawdle()
			}
			cancel()
		}()
		f.returns(func() {
			h, ok, err := f.a.TryLock(ctx, f.key, f.TTL)
			switch {
			case ok && err != nil:
				f.Errorf("acquired, with an error: %v", err)
			case ok:
				// The ttl can be over by now.
				if err := f.a.Release(f.Context(), h); err != nil && !(f.Expires && errors.Is(err, locking.ErrLost)) {
					f.Errorf("release: %v", err)
				}
			case err == nil:
				f.Error("refused, and nothing was held")
			}
		})
		cancel()
		// A server can take a moment to notice that a client has gone.
		h, _ := f.becomesFree(f.key)
		f.release(f.thief, h)
	}
}
