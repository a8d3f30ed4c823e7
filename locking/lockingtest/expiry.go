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
		h, _ := f.becomesFree(f.b, f.key)
		f.release(f.b, h)
	}
}

// slack is how much earlier than its ttl a lock can be over, because of rounding.
func (f *fixture) slack() time.Duration { return f.TTL / 20 }

// lasts also holds of locks that don't expire.
func lasts(f *fixture) {
	sent := time.Now()
	h := f.acquire(f.a, f.key, f.TTL)
	switch {
	case !f.Expires:
		f.pass(2 * f.TTL)
		f.refused(f.b, f.key)
		f.release(f.a, h)
	case f.Advance != nil:
		f.Advance(f.TTL - f.slack())
		f.refused(f.b, f.key)
		f.release(f.a, h)
	default:
		h, at := f.becomesFree(f.b, f.key)
		if at.Sub(sent) < f.TTL-f.slack() {
			f.Errorf("free after %v of %v", at.Sub(sent), f.TTL)
		}
		f.release(f.b, h)
	}
}

func expiryFrees(f *fixture) {
	h := f.acquire(f.a, f.key, f.TTL)
	if !f.Expires {
		f.pass(2 * f.TTL)
		f.refused(f.b, f.key)
		f.release(f.a, h)
		return
	}
	if f.Advance != nil {
		f.Advance(f.TTL + f.slack())
		f.release(f.b, f.acquire(f.b, f.key, long))
		return
	}
	h, _ = f.becomesFree(f.b, f.key)
	f.release(f.b, h)
}

// renewExtends tries again if this machine was so slow that the ttl was over before Renew.
func renewExtends(f *fixture) {
	for range 20 {
		h := f.acquire(f.a, f.key, f.TTL)
		f.pass(f.TTL * 2 / 3)
		sent := time.Now()
		err := f.a.Renew(f.Context(), h)
		if f.Expires && f.Advance == nil && errors.Is(err, locking.ErrLost) {
			continue
		}
		if err != nil {
			f.Fatalf("renew: %v", err)
		}
		if f.Advance == nil && f.Expires {
			h, at := f.becomesFree(f.b, f.key)
			if at.Sub(sent) < f.TTL-f.slack() {
				f.Errorf("free %v after a renewal for %v", at.Sub(sent), f.TTL)
			}
			f.release(f.b, h)
			return
		}
		f.pass(f.TTL * 2 / 3)
		f.refused(f.b, f.key)
		if !f.Expires {
			f.release(f.a, h)
			return
		}
		f.pass(f.TTL/3 + f.slack())
		f.release(f.b, f.acquire(f.b, f.key, long))
		return
	}
	f.Fatal("each lock was over after two thirds of its ttl")
}

// expiredHandle checks a handle whose ttl is over, with and without a new holder.
func expiredHandle(f *fixture) {
	if !f.Expires {
		h := f.acquire(f.a, f.key, f.TTL)
		f.pass(2 * f.TTL)
		if err := f.a.Renew(f.Context(), h); err != nil {
			f.Errorf("renew: %v", err)
		}
		f.release(f.a, h)
		return
	}
	expired := f.acquire(f.a, f.key, f.TTL)
	f.pass(f.TTL + f.slack())
	h, _ := f.becomesFree(f.b, f.key)
	f.isLost("renew beside another holder", f.a.Renew(f.Context(), expired))
	f.isLost("release beside another holder", f.a.Release(f.Context(), expired))
	f.refused(f.c, f.key)
	f.release(f.b, h)
	f.isLost("renew of a free lock", f.a.Renew(f.Context(), expired))
	f.isLost("release of a free lock", f.a.Release(f.Context(), expired))
	f.release(f.b, f.acquire(f.b, f.key, long))
}
