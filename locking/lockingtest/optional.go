package lockingtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/repolock/repolock/locking"
)

// The rules in this file pass at once if the backend doesn't implement their interface.

func (f *fixture) see() *locking.Info {
	f.Helper()
	info, err := f.c.Backend.(locking.Inspector).Inspect(f.Context(), f.key)
	if err != nil {
		f.Fatalf("inspect: %v", err)
	}
	return info
}

// seeHeld returns the result of Inspect, and ends the test if that shows a free lock.
func (f *fixture) seeHeld() *locking.Info {
	f.Helper()
	info := f.see()
	if info == nil {
		f.Fatal("inspect shows no lock, and it is held")
	}
	return info
}

func inspectShows(f *fixture) {
	if _, ok := f.c.Backend.(locking.Inspector); !ok {
		return
	}
	if info := f.see(); info != nil {
		f.Errorf("of a free lock: %+v", info)
	}
	h := f.acquire(f.a, f.key, long)
	if i := f.see(); i == nil || i.Key != f.key || i.Stale || i.Unreadable != "" || i.Revision == "" {
		f.Errorf("of a held lock: %+v", i)
	}
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew after inspect: %v", err)
	}
	f.release(f.a, h)
	if info := f.see(); info != nil {
		f.Errorf("of a released lock: %+v", info)
	}
}

// revisionsDiffer also checks that a revision doesn't contain the token.
func revisionsDiffer(f *fixture) {
	if _, ok := f.c.Backend.(locking.Inspector); !ok {
		return
	}
	seen := make(map[string]bool)
	for _, c := range []*client{f.a, f.b, f.a} {
		h := f.acquire(c, f.key, long)
		info := f.seeHeld()
		if again := f.seeHeld(); again.Revision != info.Revision {
			f.Errorf("the revision of one lock is %q, then %q", info.Revision, again.Revision)
		}
		if info.Revision == "" || seen[info.Revision] {
			f.Errorf("revision %q after %v", info.Revision, seen)
		}
		if strings.Contains(info.Revision, h.Token()) {
			f.Error("the revision has the token: a reader could release the lock")
		}
		seen[info.Revision] = true
		f.release(c, h)
		f.pass(time.Millisecond) // because a revision can be a time
	}
}

func breakRemovesSeen(f *fixture) {
	breaker, ok := f.c.Backend.(locking.Breaker)
	_, can := f.c.Backend.(locking.Inspector)
	if !ok || !can {
		return
	}
	broken := func(what string, seen *locking.Info, stale, want bool) {
		f.Helper()
		if got, err := breaker.Break(f.Context(), seen, stale); got != want || err != nil {
			f.Errorf("break of %s (stale %v): removed %v, %v, want %v", what, stale, got, err, want)
		}
	}
	h := f.acquire(f.a, f.key, long)
	old := f.seeHeld()
	broken("a live lock", old, true, false)
	f.release(f.a, h)
	f.pass(time.Millisecond) // because a revision can be a time
	h = f.acquire(f.b, f.key, long)
	broken("an older lock", old, false, false)
	seen := f.seeHeld()
	forged := *seen
	forged.Revision = old.Revision
	broken("a lock with another revision", &forged, false, false)
	forged.Revision = "" // Inspect never returns that, so Break can also return an error
	if got, err := breaker.Break(f.Context(), &forged, false); got {
		f.Errorf("break of a lock without a revision: removed %v, %v", got, err)
	}
	if err := f.b.Renew(f.Context(), h); err != nil {
		f.Errorf("renew after the break of an older lock: %v", err)
	}
	seen = f.seeHeld() // a renewal can have changed the revision
	broken("what was seen", &locking.Info{Key: seen.Key, Revision: seen.Revision}, false, true)
	f.isLost("renew of a broken lock", f.b.Renew(f.Context(), h))
	f.release(f.a, f.acquire(f.a, f.key, long))
	f.isLost("release of a broken lock", f.b.Release(f.Context(), h))
	broken("a free lock", seen, false, false)
}

func resumeRestores(f *fixture) {
	resumer, ok := f.a.Backend.(locking.Resumer)
	if !ok {
		return
	}
	h := f.acquire(f.a, f.key, long)
	if err := resumer.Resume(f.Context(), h); err != nil {
		f.Errorf("resume of a held lock: %v", err)
	}
	f.refused(f.b, f.key)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	f.returns(func() {
		if err := resumer.Resume(ctx, h); errors.Is(err, locking.ErrLost) {
			f.Errorf("resume with an ended context: %v", err)
		}
	})
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew after resume: %v", err)
	}
	f.release(f.a, h)
	if !f.Expires {
		return
	}
	h = f.acquire(f.a, f.key, f.TTL)
	f.pass(f.TTL + f.slack())
	switch err := resumer.Resume(f.Context(), h); {
	case err == nil && f.Advance == nil && !f.Bubble:
		// On a slow machine it can have expired again by now.
		if err := f.a.Release(f.Context(), h); err != nil && !errors.Is(err, locking.ErrLost) {
			f.Errorf("release after resume: %v", err)
		}
	case err == nil:
		f.refused(f.b, f.key)
		f.release(f.a, h)
	case !errors.Is(err, locking.ErrLost):
		f.Errorf("resume of an expired lock: %v", err)
	}
}

func examineChangesNothing(f *fixture) {
	examiner, ok := f.c.Backend.(locking.Examiner)
	if !ok {
		return
	}
	h := f.acquire(f.a, f.key, long)
	findings, err := examiner.Examine(f.Context())
	if err != nil || len(findings) == 0 {
		f.Errorf("%d findings, %v", len(findings), err)
	}
	for _, one := range findings {
		good := one.Severity == locking.Good
		if one.What == "" || one.Found == "" || strings.ContainsAny(one.What+one.Found+one.Advice, "\n\r") ||
			one.Severity < locking.Good || one.Severity > locking.Bad || good != (one.Advice == "") {
			f.Errorf("finding %+v: want What and Found in one line, and Advice unless it is good", one)
		}
	}
	f.refused(f.b, f.key)
	if err := f.a.Renew(f.Context(), h); err != nil {
		f.Errorf("renew after examine: %v", err)
	}
	f.release(f.a, h)
	if _, err := examiner.Examine(f.Context()); err != nil {
		f.Errorf("without a lock: %v", err)
	}
	f.release(f.b, f.acquire(f.b, f.key, long))
}
