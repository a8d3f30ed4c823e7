package replock

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
// stops then. A holder that is just resuming its lock can have a new id by then: Break removes that lock, too. With
// Stale or Dead the resumed lock stays, and is the error of the removed one. Break costs a Status and one delete per
// object, one more list for each page, and with Stale one more list per object. If listings don't have the store's
// time, Stale also costs a put, a list and a delete.
//
// Break returns every lock that it removed or tried to remove. The error joins the failures, each of which names its
// key. If no lock is selected, Break returns no error.
func (l *Locker) Break(ctx context.Context, opts BreakOptions) ([]Broken, error) {
	seen := verdict.Memory{}
	s, err := l.survey(ctx, seen)
	if err != nil {
		return nil, err
	}
	entries, st := s.entries, s.st
	if opts.Stale && !st.Known() && len(entries) > 0 {
		if st, err = l.probeTime(ctx); err != nil {
			return nil, err
		}
	}
	if opts.Stale {
		entries = slices.DeleteFunc(entries, func(e *verdict.Entry) bool { return errors.Is(e.Err, wire.ErrEmptied) && e.Unfinished(st, e.Listed) })
	}
	broken := opts.choose(l.surveyed(entries, st))
	if opts.DryRun {
		return broken, nil
	}
	broken = l.breakAll(ctx, broken, opts.Stale, entries)
	broken, err = l.breakResumed(ctx, opts, broken, seen)
	errs := []error{err}
	for _, b := range broken {
		errs = append(errs, b.Err)
	}
	return broken, fault.Join(errs...)
}

// choose returns the locks that the options select, with the keys that Only has.
func (o BreakOptions) choose(infos []Info) (chosen []Broken) {
	type name struct{ key, lock string }
	shown := map[name]bool{}
	for _, b := range o.Only {
		for _, key := range b.Keys {
			shown[name{key, b.fingerprint()}] = true
		}
	}
	for _, i := range infos {
		if !o.selects(i) {
			continue
		}
		if len(shown) > 0 {
			i.Keys = slices.DeleteFunc(i.Keys, func(key string) bool { return !shown[name{key, i.fingerprint()}] })
		}
		if len(i.Keys) > 0 {
			chosen = append(chosen, Broken{Info: i})
		}
	}
	return chosen
}

// breakAll removes the objects of the chosen locks. It returns the locks of which it removed an object, or tried to.
func (l *Locker) breakAll(ctx context.Context, chosen []Broken, stale bool, listed []*verdict.Entry) []Broken {
	each(chosen, func(i int, _ Broken) { l.breakLock(ctx, &chosen[i], stale, listed) })
	return slices.DeleteFunc(chosen, func(b Broken) bool { return len(b.Keys) == 0 })
}

// maxResumed is how often Break looks for a holder that has resumed its lock. A holder whose resumed lock is broken
// can't resume it again, so the second look finds nothing.
const maxResumed = 5

// breakResumed removes resumed locks: the holder of a lock that Break has removed, or was to remove, can have resumed
// it meanwhile under a new id. breakResumed looks until a listing shows no resumed lock.
//
// A resume puts its new flag, and then looks for the old one. If the new flag's put was answered before this listing
// began, the listing shows it. Otherwise the resume looks for the old flag after the deletion was answered, and fails.
func (l *Locker) breakResumed(ctx context.Context, opts BreakOptions, broken []Broken, seen verdict.Memory) ([]Broken, error) {
	before := maps.Clone(seen)
	var unknown error
	for range maxResumed {
		removed := opts.removed(broken)
		if len(removed) == 0 {
			return broken, nil
		}
		s, err := l.survey(ctx, seen)
		if err != nil {
			return broken, resumedPerhaps(err)
		}
		again := opts.resumed(broken, removed, l.surveyed(s.entries, s.st))
		unknown = nil
		for _, e := range s.entries {
			if before[e.Key] == nil && (errors.Is(e.Err, verdict.ErrVanished) || errors.Is(e.Err, verdict.ErrUnread)) {
				unknown = fault.Errorf("%s: %w", e.Key, e.Err)
				e.Forget()
			}
		}
		if len(again) == 0 && unknown == nil {
			return broken, nil
		}
		broken = append(broken, l.breakAll(ctx, again, opts.Stale, s.entries)...)
	}
	return broken, resumedPerhaps(unknown)
}

func resumedPerhaps(err error) error {
	return fault.Join(errors.New("a holder might just have resumed a deleted lock: look at the locks, and repeat break-lock"), err)
}

// resumed returns the resumed locks that are listed now and must be removed. If the options don't select such a lock,
// because it is live, resumed reports that as the error of the removed lock.
func (o BreakOptions) resumed(broken []Broken, removed map[string]*Broken, listed []Info) (again []Broken) {
	o.ID = "" // a resume changes it
	failed := func(i Info) bool {
		return slices.ContainsFunc(broken, func(b Broken) bool { return b.ID == i.ID && b.Err != nil })
	}
	for _, i := range listed {
		was, same := removed[i.acquired()]
		switch {
		case !same || failed(i):
		case o.selects(i):
			again = append(again, Broken{Info: i})
		case was != nil && was.ID != i.ID:
			was.Err = fault.Errorf("its holder has just resumed it, and still holds it: %s", i)
		}
	}
	return again
}

// removed returns the locks that were removed, by the ids with which they were first acquired. It has nil for a lock of
// Only that wasn't found.
func (o BreakOptions) removed(broken []Broken) map[string]*Broken {
	removed := map[string]*Broken{}
	for _, b := range o.Only {
		removed[b.acquired()] = nil
	}
	for i := range broken {
		if broken[i].Err == nil {
			removed[broken[i].acquired()] = &broken[i]
		}
	}
	delete(removed, "")
	return removed
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
