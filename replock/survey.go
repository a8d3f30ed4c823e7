package replock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// Status returns all locks in the repository except released ones, exclusive ones first. It costs one list per page,
// and one get per lock whose body isn't on the page. It never writes, so it knows the store's time only if listings
// have it: see Info.StoreClock. It returns an error if the locks can't be listed. A lock that can't be read is an Info
// with the verdict Unreadable.
func (l *Locker) Status(ctx context.Context) (locks []Info, err error) {
	_, err = l.Survey(ctx, func(some []Info) { locks = append(locks, some...) })
	if err != nil {
		return nil, err
	}
	return locks, nil
}

// Survey is Status, but calls each with some of the locks at a time, so that they needn't all be in memory. It lists all
// before it reads the first: if the locks can't be listed, it doesn't call each. It also returns the listed keys that
// no client can have written: see IsLock. They are in byte order. All clients ignore them, and Break leaves them alone.
func (l *Locker) Survey(ctx context.Context, each func(locks []Info)) (ignored []string, err error) {
	var pages []listedPage
	if err := l.pages(ctx, func(p listedPage) { pages = append(pages, p) }); err != nil || len(pages) == 0 {
		return nil, err
	}
	var st verdict.StoreTime
	for _, p := range pages {
		st = p.time(st)
	}
	var kept verdict.Bodies
	var pairs []Info // exclusive locks, each of which has two objects
	give := func(some []Info) {
		some = slices.DeleteFunc(some, func(i Info) bool { return i.Verdict == Released })
		if len(some) > 0 {
			each(some)
		}
	}
	for _, p := range pages {
		for objects := range slices.Chunk(p.Objects, readBatch) {
			entries, others := l.entries(verdict.Memory{}, objects, p)
			ignored = append(ignored, others...)
			together, done := store.SharingGets(ctx)
			l.readBodies(together, p.Page, entries, &kept)
			done()
			infos := l.judged(entries, st)
			clear(objects) // they are all in memory until here
			// A listing has the objects of exclusive locks before the objects of shared locks.
			if n := slices.IndexFunc(infos, func(i Info) bool { return i.Mode != Exclusive }); n >= 0 {
				give(merge(append(pairs, infos[:n]...)))
				give(merge(infos[n:]))
				pairs = nil
			} else {
				pairs = append(pairs, infos...)
			}
		}
	}
	give(merge(pairs))
	return ignored, ctx.Err()
}

// IsLock reports whether a key under a prefix belongs to a lock. A prefix ends with a slash, as DefaultPrefix does. In
// doubt IsLock returns true: it returns false only for a file that is known to be another program's. See
// docs/evidence/protocol.md, Files of other programs.
func IsLock(prefix, key string) bool { return wire.Keys{Prefix: prefix}.Kind(key).IsLock() }

// surveyed judges the locks of a survey, each as of the time when it was listed, and returns them.
func (l *Locker) surveyed(entries []*verdict.Entry, st verdict.StoreTime) []Info {
	return merge(l.judged(entries, st))
}

// judged is surveyed, but the two objects of an exclusive lock are two Infos.
func (l *Locker) judged(entries []*verdict.Entry, st verdict.StoreTime) []Info {
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		if errors.Is(e.Err, verdict.ErrVanished) {
			continue
		}
		if errors.Is(e.Err, verdict.ErrUnread) {
			e.Verdict, e.Why = verdict.Unreadable, e.Err.Error()
		} else {
			l.judges().Judge(e, st, e.Listed)
		}
		i := l.info(e, st, e.Listed)
		if !i.StoreClock && i.Verdict == Live && i.Left < -verdict.Margin {
			i.Verdict, i.Why = Doubtful, "this machine's clock says that it has expired, and the store doesn't report its time"
		}
		infos = append(infos, i)
	}
	return infos
}

// listedPage is a page of a listing. sent and answered are Clock.Elapsed.
type listedPage struct {
	store.Page
	sent, answered time.Duration
}

// time returns the store's time on the page, or st if the page doesn't have it.
func (p listedPage) time(st verdict.StoreTime) verdict.StoreTime {
	if p.Now.IsZero() {
		return st
	}
	return verdict.StoreTime{At: p.Now, Elapsed: p.answered}
}

// pages lists every object under the locks' prefix, and calls each with each page.
func (l *Locker) pages(ctx context.Context, each func(listedPage)) error {
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.All(), cursor)
		if err != nil {
			return fault.While("listing the locks", err)
		}
		each(listedPage{page, sent, l.opts.Clock.Elapsed()})
		if cursor = page.Next; cursor == "" {
			return ctx.Err()
		}
	}
}

// entries returns the entries of the locks among a page's objects, and the keys that aren't locks.
func (l *Locker) entries(seen verdict.Memory, objects []store.Object, p listedPage) (locks []*verdict.Entry, ignored []string) {
	locks = make([]*verdict.Entry, 0, len(objects))
	for _, o := range objects {
		k := l.keys.Kind(o.Key)
		if !k.IsLock() {
			ignored = append(ignored, o.Key)
			continue
		}
		e := seen.See(o, k, p.answered)
		e.Listed = p.sent
		locks = append(locks, e)
	}
	return locks, ignored
}

// readBodies reads the bodies of the entries that weren't read yet. kept bounds the bodies in memory.
func (l *Locker) readBodies(ctx context.Context, page store.Page, entries []*verdict.Entry, kept *verdict.Bodies) {
	for batch := range slices.Chunk(entries, readBatch) {
		adopt(page, batch)
		l.readAll(ctx, batch, false, nil)
		for _, e := range batch {
			kept.Add(e)
		}
	}
}

// survey has the locks that the listing of a whole prefix has found.
type survey struct {
	entries []*verdict.Entry
	st      verdict.StoreTime // of the last page that has it
}

// survey lists every lock object, page by page, and reads the objects that seen doesn't know.
func (l *Locker) survey(ctx context.Context, seen verdict.Memory) (s survey, err error) {
	var kept verdict.Bodies
	err = l.pages(ctx, func(p listedPage) {
		s.st = p.time(s.st)
		entries, _ := l.entries(seen, p.Objects, p)
		l.readBodies(ctx, p.Page, entries, &kept)
		s.entries = append(s.entries, entries...)
	})
	return s, err
}
