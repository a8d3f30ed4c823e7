package lockingtest

import (
	"errors"
	"time"

	"github.com/repolock/repolock/locking"
)

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
		f.refused(f.thief, f.key)
		f.release(f.a, h)
	default:
		h, at := f.becomesFree(f.key)
		if at.Sub(sent) < f.TTL-f.slack() {
			f.Errorf("free after %v of %v", at.Sub(sent), f.TTL)
		}
		f.release(f.thief, h)
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
		f.onlyStolen()
		f.release(f.thief, f.acquire(f.thief, f.key, long))
		return
	}
	if f.Steal != nil {
		f.pass(f.TTL + f.slack())
		f.onlyStolen()
	}
	h, _ = f.becomesFree(f.key)
	f.release(f.thief, h)
}

// onlyStolen checks that an expired lock is refused to all but the thief.
func (f *fixture) onlyStolen() {
	f.Helper()
	if f.Steal != nil {
		f.refused(f.b, f.key)
		f.refused(f.c, f.key)
	}
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
			h, at := f.becomesFree(f.key)
			if at.Sub(sent) < f.TTL-f.slack() {
				f.Errorf("free %v after a renewal for %v", at.Sub(sent), f.TTL)
			}
			f.release(f.thief, h)
			return
		}
		f.pass(f.TTL * 2 / 3)
		f.refused(f.b, f.key)
		if !f.Expires {
			f.release(f.a, h)
			return
		}
		f.pass(f.TTL/3 + f.slack())
		f.release(f.thief, f.acquire(f.thief, f.key, long))
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
	h, _ := f.becomesFree(f.key)
	f.isLost("renew beside another holder", f.a.Renew(f.Context(), expired))
	f.isLost("release beside another holder", f.a.Release(f.Context(), expired))
	f.refused(f.c, f.key)
	f.release(f.thief, h)
	f.isLost("renew of a free lock", f.a.Renew(f.Context(), expired))
	f.isLost("release of a free lock", f.a.Release(f.Context(), expired))
	f.release(f.b, f.acquire(f.b, f.key, long))
}
