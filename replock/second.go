package replock

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// renewProven renews the objects. If the lease has ended on the store's clock, it first puts a second flag, and then
// shows that no client has acquired since. If a request fails, the next attempt continues.
func (k *term) renewProven(ctx context.Context, all []*object) []error {
	flag := all[0]
	if !k.seconds.wanted.Load() && !k.underSecond() {
		errs := k.renewAll(ctx, all)
		aged := false
		for _, err := range errs {
			aged = aged || errors.Is(err, errAged)
		}
		if !aged {
			return errs
		}
	}
	if err := k.prove(ctx, flag); err != nil {
		return []error{err}
	}
	sent := flag.sent
	errs := k.renewAll(ctx, all)
	if fault.Join(errs...) != nil {
		return errs
	}
	if err := k.proved(ctx, flag); err != nil {
		flag.sent, flag.renewed = sent, false // it proves nothing yet
		return []error{err}
	}
	return errs
}

// renewAll renews the objects that were not renewed yet.
func (k *term) renewAll(ctx context.Context, all []*object) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		if !o.renewed {
			wg.Go(func() {
				errs[i] = k.renew(ctx, o, i == 0)
				o.renewed = errs[i] == nil
			})
		}
	}
	wg.Wait()
	return errs
}

// prove puts a second flag, and returns nil if no other client has acquired since our flag was refreshed.
func (k *term) prove(ctx context.Context, flag *object) error {
	if k.underSecond() {
		return nil
	}
	s, err := k.putSecond(ctx)
	if err != nil {
		return err
	}
	t := k.asAttempt()
	t.flag, t.sent, t.raised, t.looks = s.flag, s.sent, s.raised, s.looks
	err = k.lookUntil(ctx, t, func(ctx context.Context) error { return k.unchanged(ctx, flag) })
	switch {
	case errors.Is(err, errUnlisted):
		err = k.broken(s.flag.key, "it was deleted, by break-lock or by hand")
	case errors.Is(err, errCopied):
		err = k.copied(s.flag.key)
	}
	k.seconds.mu.Lock()
	defer k.seconds.mu.Unlock()
	if s.proven = err == nil; !s.proven {
		k.seconds.now, s.until = nil, 0
		k.seconds.left = append(k.seconds.left, s)
	}
	return err
}

// putSecond puts the second flag, once. So if a listing shows it later, it was stored all the time.
func (k *term) putSecond(ctx context.Context) (*second, error) {
	t, err := k.l.newAttempt(k.t.mode, k.t.operation, k.own())
	if err != nil {
		return nil, err
	}
	t.body.AcquiredAt, t.body.AcquiredID = k.t.body.AcquiredAt, cmp.Or(k.t.body.AcquiredID, k.t.id)
	t.body.State, t.st = wire.StateHeld, *k.now.Load()
	k.l.date(t)
	t.st = verdict.StoreTime{}
	s := &second{attempt: t}
	k.seconds.mu.Lock()
	k.seconds.now = s
	k.seconds.mu.Unlock()
	body := t.body.Encode()
	t.bodies.note(bodyMark(t.flag.key, body), t.sent)
	o, err := k.write(ctx, t.flag.key, body, store.PutOptions{})
	if err != nil {
		k.seconds.mu.Lock()
		defer k.seconds.mu.Unlock()
		k.seconds.now, k.seconds.left = nil, append(k.seconds.left, s)
		return nil, err
	}
	t.bodies.note(etagMark(t.flag.key, o.ETag), t.sent)
	k.l.raised(t, o)
	s.etag, s.until = o.ETag, t.sent+secondStays
	return s, nil
}

// unchanged returns nil if our flag is stored as we last put it, and no client has deleted it since. An acquirer deletes
// our stale flag before it acquires, so nil means that no client had acquired when the listing was made. If the store
// applied an earlier refresh without an answer, that refresh might have put a deleted flag back. Then unchanged returns
// that the lock is lost. The holder can resume it if no client deleted the flag.
func (k *term) unchanged(ctx context.Context, flag *object) error {
	seen, err := k.confirm(ctx, flag)
	if err != nil {
		return err
	}
	if !k.flags.unbroken(seen.ETag, seen.ModTime) {
		lost := k.broken(flag.key, stoodStillOr+"and it is unknown whether another client deleted the lock before its last refresh was stored")
		lost.Definite = false
		return lost
	}
	return nil
}

// proved ends a refresh under a second flag. If that flag is still stored, no client has acquired.
func (k *term) proved(ctx context.Context, flag *object) error {
	k.seconds.mu.Lock()
	s := k.seconds.now
	k.seconds.mu.Unlock()
	refreshed, err := k.confirm(ctx, flag) // before the look that shows the second flag
	if err != nil {
		return err
	}
	sent := k.l.opts.Clock.Elapsed()
	page, err := k.listed(ctx, s.flag.key)
	if err != nil {
		return err
	}
	if seen, _ := verdict.InPage(page, s.flag.key); seen == nil || seen.Size == 0 || seen.ETag != s.etag {
		return k.broken(s.flag.key, "it was deleted, by break-lock or by hand")
	}
	k.flags.trust(refreshed)
	if !page.Now.IsZero() {
		k.seconds.page.Store(&pageTime{store: page.Now, sent: sent, refreshed: flag.sent})
	}
	k.seconds.mu.Lock()
	defer k.seconds.mu.Unlock()
	k.seconds.wanted.Store(false)
	k.seconds.now, k.seconds.left = nil, append(k.seconds.left, s)
	return nil
}

// dropSeconds deletes the second flags that are no longer needed: after a look the flags whose time is over, and at the
// end of the lock all of them. It returns the first error.
func (k *term) dropSeconds(ctx context.Context, end bool) (failed error) {
	k.seconds.mu.Lock()
	if end && k.seconds.now != nil {
		k.seconds.now, k.seconds.left = nil, append(k.seconds.left, k.seconds.now)
	}
	left := k.seconds.left
	k.seconds.left = nil
	k.seconds.mu.Unlock()
	for _, s := range left {
		err := error(nil)
		switch {
		case end:
			err = k.l.remove(ctx, s.flag.key)
		case k.l.opts.Clock.Elapsed() < s.until:
			err = errNotYet
		default:
			err = k.l.deleteOrEmpty(s.flag.key, func(by ending) error {
				_, err := ask(ctx, &k.renewer, by.what+" "+s.flag.key, func(ctx context.Context) (nothing, error) {
					return nothing{}, by.send(ctx, s.flag.key, "")
				})
				return err
			})
		}
		if err != nil {
			k.seconds.mu.Lock()
			k.seconds.left = append(k.seconds.left, s)
			k.seconds.mu.Unlock()
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

var errNotYet = errors.New("it is still needed")
