package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// BreakOptions selects the locks that Break removes. The zero value selects all.
type BreakOptions struct {
	// Stale selects the locks that are certainly stale.
	Stale bool
	// Doubtful makes Stale also select locks that have expired by one clock. Only a watch for their whole ttl would
	// make that certain, so a person must decide.
	Doubtful bool
	// Dead selects the locks whose holder was a process of this machine and boot that no longer
	// exists: see Info.ProcessGone. A command that the process ran might live on, unless repolock's
	// guard ended it.
	Dead bool
	// ID selects the lock with this id.
	ID string
	// Only selects locks that an earlier Break has returned. So Break doesn't remove a lock that the person wasn't
	// shown: lock.exclusive can be another holder's by now.
	Only []Broken
	// DryRun makes Break return the locks that it would remove, and remove none.
	DryRun bool
}

// selects reports whether the options select a lock. It ignores Only.
func (o BreakOptions) selects(i Info) bool {
	stale := i.Verdict == Stale || i.Verdict == Released || o.Doubtful && i.Verdict == Doubtful && i.Left < 0
	return (!o.Stale || stale) && (!o.Dead || i.ProcessGone) && (o.ID == "" || i.ID == o.ID)
}

// Broken is a lock that Break removed, or failed to remove.
type Broken struct {
	Info
	// Err is why Break failed to remove the lock, or nil.
	Err error
}

// Break removes locks in an emergency, whatever their age and holder. A live holder notices that at its next look, and
// stops then. Break costs a Status and one delete per object, and with Stale one more list per object. If listings
// don't have the store's time, Stale also costs a put, a list and a delete.
//
// Break returns every lock that it removed or tried to remove. The error joins the failures, each of which names its
// key. If no lock is selected, Break returns no error.
func (l *Locker) Break(ctx context.Context, opts BreakOptions) ([]Broken, error) {
	entries, st, err := l.survey(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Stale && !st.Known() && len(entries) > 0 {
		if st, err = l.probeTime(ctx); err != nil {
			return nil, err
		}
	}
	type name struct{ key, lock string }
	shown := map[name]bool{}
	for _, b := range opts.Only {
		for _, key := range b.Keys {
			shown[name{key, b.fingerprint()}] = true
		}
	}
	if opts.Stale {
		entries = slices.DeleteFunc(entries, func(e *verdict.Entry) bool { return errors.Is(e.Err, wire.ErrEmptied) && e.Unfinished(st, e.Listed) })
	}
	var broken []Broken
	for _, i := range l.surveyed(entries, st) {
		if !opts.selects(i) {
			continue
		}
		if len(shown) > 0 {
			i.Keys = slices.DeleteFunc(i.Keys, func(key string) bool { return !shown[name{key, i.fingerprint()}] })
		}
		if len(i.Keys) > 0 {
			broken = append(broken, Broken{Info: i})
		}
	}
	if opts.DryRun {
		return broken, nil
	}
	each(broken, func(i int, _ Broken) { l.breakLock(ctx, &broken[i], opts.Stale, entries) })
	broken = slices.DeleteFunc(broken, func(b Broken) bool { return len(b.Keys) == 0 })
	var errs []error
	for _, b := range broken {
		errs = append(errs, b.Err)
	}
	return broken, fault.Join(errs...)
}

// breakLock removes the objects of a lock. With stale set it leaves an object that was written or deleted since it was
// listed.
func (l *Locker) breakLock(ctx context.Context, b *Broken, stale bool, listed []*verdict.Entry) {
	b.Keys = slices.DeleteFunc(b.Keys, func(key string) bool {
		again, err := false, error(nil)
		if stale {
			again, err = l.refreshed(ctx, key, listed)
		}
		if err == nil && !again {
			err = l.remove(ctx, key)
		}
		if errors.Is(err, store.ErrInvalidKey) {
			err = fault.Errorf("only the store's own tools can remove it (aws s3 rm, mc rm, b2 rm): %w", err)
		}
		if err != nil {
			b.Err = fault.Join(b.Err, fault.While("still there", err))
		}
		return again
	})
}

// refreshed reports whether an object was written or deleted since it was listed. Break might have been stopped since
// then, or the store slow. Meanwhile the holder of a stale lock might have woken from a pause that its clocks don't
// count.
func (l *Locker) refreshed(ctx context.Context, key string, listed []*verdict.Entry) (bool, error) {
	now, err := l.find(ctx, key)
	if err != nil || now == nil {
		return err == nil, err
	}
	return !slices.ContainsFunc(listed, func(e *verdict.Entry) bool {
		return e.Key == key && e.ETag == now.ETag && e.Size == now.Size && e.ModTime.Equal(now.ModTime)
	}), nil
}

// probeTime learns the store's time from an object that it puts, lists and deletes. The object is an empty flag, which
// counts as released. If this process can't delete it, other clients do.
func (l *Locker) probeTime(ctx context.Context) (verdict.StoreTime, error) {
	for try := 1; ; try++ {
		id, err := l.newID()
		if err != nil {
			return verdict.StoreTime{}, err
		}
		key := l.keys.SharedFlag(l.opts.Clock.Now(), id)
		if _, err := l.put(ctx, key, nil, store.PutOptions{}); err != nil {
			return verdict.StoreTime{}, fault.Errorf("learning the store's time: %w", err)
		}
		o, err := l.find(ctx, key)
		answered := l.opts.Clock.Elapsed() // not the time of the put, because the store might have applied an earlier send since
		if rerr := l.remove(ctx, key); err == nil {
			err = rerr
		}
		switch {
		case err != nil:
			return verdict.StoreTime{}, fault.Errorf("learning the store's time: %w", err)
		case o != nil:
			return verdict.StoreTime{At: o.ModTime, Elapsed: answered}, nil
		case try == maxTries: // perhaps another client deleted it each time
			return verdict.StoreTime{}, fmt.Errorf("learning the store's time: %w: %q", errUnlisted, key)
		}
	}
}
