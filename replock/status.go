package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/repolock/repolock/store"
)

// Status returns all locks in the repository, exclusive ones first, released
// ones left out. It never writes, and so knows the store's clock only where
// listings tell it; see Info.StoreClock.
func (l *Locker) Status(ctx context.Context) ([]Info, error) {
	entries, st, err := l.survey(ctx)
	if err != nil {
		return nil, err
	}
	infos := l.judged(entries, st)
	return slices.DeleteFunc(infos, func(i Info) bool { return i.Verdict == Released }), nil
}

// judged is what Status and Break say of what a survey found, each as of when it was listed.
func (l *Locker) judged(entries []*entry, st storeTime) []Info {
	var infos []Info
	for _, e := range entries {
		if errors.Is(e.err, errVanished) {
			continue
		}
		var failed readError
		if errors.As(e.err, &failed) {
			e.verdict, e.why = Unreadable, failed.err.Error()
		} else {
			l.judge(e, st, e.shown)
		}
		i := l.info(e, st, e.shown)
		if !i.StoreClock && i.Verdict == Live && i.Left < -margin {
			i.Verdict, i.Why = Doubtful, "this machine's clock says that it has expired, and the store doesn't tell its time"
		}
		infos = append(infos, i)
	}
	return merge(infos)
}

// maxBodies is how much is kept of the bodies that a survey or a look reads, in bytes: what they
// say is kept of all.
const maxBodies = 4 << 20

// survey lists and reads every lock object, page by page.
func (l *Locker) survey(ctx context.Context) ([]*entry, storeTime, error) {
	var (
		st      storeTime
		entries []*entry
		bodies  int
		s       = sight{}
	)
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.all(), cursor)
		if err != nil {
			return nil, st, fmt.Errorf("listing the locks: %w", err)
		}
		answered := l.opts.Clock.Elapsed()
		if !page.Now.IsZero() {
			st = storeTime{page.Now, answered}
		}
		before := len(entries)
		for _, o := range page.Objects {
			if k := l.keys.kind(o.Key); k != kindUnknown {
				e := s.see(o, k, answered)
				e.shown = sent
				entries = append(entries, e)
			}
		}
		for rest := entries[before:]; len(rest) > 0; {
			batch := rest[:min(4*parallel, len(rest))]
			rest = rest[len(batch):]
			l.readAll(ctx, batch, false)
			for _, e := range batch {
				if bodies += len(e.raw); bodies > maxBodies {
					e.raw = nil
				}
			}
		}
		if cursor = page.Next; cursor == "" {
			return entries, st, ctx.Err()
		}
	}
}

// BreakOptions say which locks Break removes: all of them, if none is set.
type BreakOptions struct {
	// Stale restricts it to those that are certainly stale.
	Stale bool
	// Doubtful has Stale not leave out those that are Doubtful and have expired by one clock:
	// for a person to judge. Only watching them for their whole ttl would tell.
	Doubtful bool
	// Dead restricts it to those whose holder was a process of this very machine and
	// boot that is certainly gone: see Info.ProcessGone. What it ran may live on, if
	// it was no repolock that ran it, whose guard sees to that.
	Dead bool
	// ID restricts it to the lock of this id.
	ID string
	// Shown restricts it to these locks, which an earlier Break has returned, so
	// that nothing is broken that wasn't shown: lock.exclusive may be another
	// holder's by now.
	Shown []Broken
	// DryRun removes nothing, and returns what would be.
	DryRun bool
}

// mayBeStale reports whether a lock in doubt is to be broken.
func (o BreakOptions) mayBeStale(i Info) bool {
	return o.Doubtful && i.Verdict == Doubtful && i.Left < 0
}

// Broken is an object that Break removed, or failed to remove.
type Broken struct {
	Info
	Err error
}

// Break removes locks whatever their age and holder, in an emergency: whoever
// holds one stops at the next look at the latest, and until then doesn't
// know. It returns every lock that it removed or tried to. The error joins the
// failures; each names its key. Nothing to break is no error.
func (l *Locker) Break(ctx context.Context, opts BreakOptions) ([]Broken, error) {
	entries, st, err := l.survey(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Stale && !st.known() && len(entries) > 0 {
		if st, err = l.probeTime(ctx); err != nil {
			return nil, err
		}
	}
	type name struct{ key, lock string }
	shown := map[name]bool{}
	for _, b := range opts.Shown {
		for _, key := range b.Keys {
			shown[name{key, b.identity()}] = true
		}
	}
	if opts.Stale {
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return errors.Is(e.err, errReleased) && e.unfinished(st, e.shown) })
	}
	var broken []Broken
	for _, i := range l.judged(entries, st) {
		switch {
		case opts.Stale && i.Verdict != Stale && i.Verdict != Released && !opts.mayBeStale(i), opts.Dead && !i.ProcessGone, opts.ID != "" && i.ID != opts.ID:
			continue
		}
		if len(shown) > 0 {
			i.Keys = slices.DeleteFunc(i.Keys, func(key string) bool { return !shown[name{key, i.identity()}] })
		}
		if len(i.Keys) > 0 {
			broken = append(broken, Broken{Info: i})
		}
	}
	if opts.DryRun {
		return broken, nil
	}
	each(broken, func(i int, _ Broken) {
		b := &broken[i]
		b.Keys = slices.DeleteFunc(b.Keys, func(key string) bool {
			again, err := false, error(nil)
			if opts.Stale {
				again, err = l.refreshed(ctx, key, entries)
			}
			if err == nil && !again {
				err = l.remove(ctx, key)
			}
			if errors.Is(err, store.ErrInvalidKey) {
				err = fmt.Errorf("only the store's own tools can remove it (aws s3 rm, mc rm, b2 rm): %w", err)
			}
			if err != nil {
				b.Err = join(b.Err, fmt.Errorf("%s is still there: %w", Printable(key), err))
			}
			return again
		})
	})
	broken = slices.DeleteFunc(broken, func(b Broken) bool { return len(b.Keys) == 0 })
	var errs []error
	for _, b := range broken {
		errs = append(errs, b.Err)
	}
	return broken, join(errs...)
}

// refreshed reports whether an object was written since it was listed, or has been deleted.
// Break may have been stopped for long since then, or its store slow; and the holder of a
// lock that is stale may come back, from a pause that its clocks don't count, and go on.
func (l *Locker) refreshed(ctx context.Context, key string, listed []*entry) (bool, error) {
	now, err := l.find(ctx, key)
	if err != nil || now == nil {
		return err == nil, err
	}
	return !slices.ContainsFunc(listed, func(e *entry) bool {
		return e.Key == key && e.ETag == now.ETag && e.Size == now.Size && e.ModTime.Equal(now.ModTime)
	}), nil
}

// probeTime learns the store's clock from an object that it puts and deletes: an
// empty flag, which says "released", and which others remove if this process
// can't any more.
func (l *Locker) probeTime(ctx context.Context) (storeTime, error) {
	for try := 1; ; try++ {
		id, err := l.newID()
		if err != nil {
			return storeTime{}, err
		}
		key := l.keys.flag(Shared, l.opts.Clock.Now(), id)
		if _, err := l.put(ctx, key, nil, store.PutOptions{}); err != nil {
			return storeTime{}, fmt.Errorf("learning the store's time: %w", err)
		}
		o, err := l.find(ctx, key)
		answered := l.opts.Clock.Elapsed() // not when the put was: an earlier send of it may have been applied since
		if rerr := l.remove(ctx, key); err == nil {
			err = rerr
		}
		switch {
		case err != nil:
			return storeTime{}, fmt.Errorf("learning the store's time: %w", err)
		case o != nil:
			return storeTime{o.ModTime, answered}, nil
		case try == maxTries: // somebody swept it, each time?
			return storeTime{}, fmt.Errorf("learning the store's time: %w: %q", errUnlisted, key)
		}
	}
}
