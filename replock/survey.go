package replock

import (
	"context"
	"errors"
	"slices"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
)

// Status returns all locks in the repository except released ones, exclusive ones first. It costs one list per page,
// and one get per lock whose body isn't on the page. It never writes, so it knows the store's time only if listings
// have it: see Info.StoreClock. It returns an error if the locks can't be listed. A lock that can't be read is an Info
// with the verdict Unreadable.
func (l *Locker) Status(ctx context.Context) ([]Info, error) {
	locks, _, err := l.Survey(ctx)
	return locks, err
}

// Survey is Status, and also returns the keys among the locks' that no client can have written: see IsLock. They are
// in byte order. All clients ignore them, and Break leaves them alone.
func (l *Locker) Survey(ctx context.Context) (locks []Info, ignored []string, err error) {
	s, err := l.survey(ctx, verdict.Memory{})
	if err != nil {
		return nil, nil, err
	}
	locks = l.surveyed(s.entries, s.st)
	return slices.DeleteFunc(locks, func(i Info) bool { return i.Verdict == Released }), s.ignored, nil
}

// IsLock reports whether a key is one of a lock under a prefix. A prefix ends with a slash, as DefaultPrefix does. In
// doubt it is a lock: only files that are known to be another program's aren't. See docs/evidence/protocol.md, Files of
// other programs.
func IsLock(prefix, key string) bool { return wire.Keys{Prefix: prefix}.Kind(key).IsLock() }

// surveyed judges the locks of a survey, each as of the time when it was listed, and returns them.
func (l *Locker) surveyed(entries []*verdict.Entry, st verdict.StoreTime) []Info {
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
	return merge(infos)
}

// survey is what the listing of a whole prefix has found.
type survey struct {
	entries []*verdict.Entry
	ignored []string          // keys that aren't locks
	st      verdict.StoreTime // of the last page that has it
}

// survey lists every lock object, page by page, and reads those that seen doesn't know.
func (l *Locker) survey(ctx context.Context, seen verdict.Memory) (s survey, err error) {
	var kept verdict.Bodies
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.All(), cursor)
		if err != nil {
			return survey{}, fault.While("listing the locks", err)
		}
		answered := l.opts.Clock.Elapsed()
		if !page.Now.IsZero() {
			s.st = verdict.StoreTime{At: page.Now, Elapsed: answered}
		}
		before := len(s.entries)
		s.entries = slices.Grow(s.entries, len(page.Objects))
		for _, o := range page.Objects {
			k := l.keys.Kind(o.Key)
			if !k.IsLock() {
				s.ignored = append(s.ignored, o.Key)
				continue
			}
			e := seen.See(o, k, answered)
			e.Listed = sent
			s.entries = append(s.entries, e)
		}
		for batch := range slices.Chunk(s.entries[before:], readBatch) {
			adopt(page, batch) // kept bounds the bodies in memory
			l.readAll(ctx, batch, false, nil)
			for _, e := range batch {
				kept.Add(e)
			}
		}
		if cursor = page.Next; cursor == "" {
			return s, ctx.Err()
		}
	}
}
