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
	entries, st, err := l.survey(ctx, verdict.Memory{})
	if err != nil {
		return nil, err
	}
	infos := l.surveyed(entries, st)
	return slices.DeleteFunc(infos, func(i Info) bool { return i.Verdict == Released }), nil
}

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

// survey lists every lock object, page by page, and reads those that s doesn't know.
func (l *Locker) survey(ctx context.Context, s verdict.Memory) ([]*verdict.Entry, verdict.StoreTime, error) {
	var st verdict.StoreTime
	var entries []*verdict.Entry
	var kept verdict.Bodies
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.All(), cursor)
		if err != nil {
			return nil, st, fault.While("listing the locks", err)
		}
		answered := l.opts.Clock.Elapsed()
		if !page.Now.IsZero() {
			st = verdict.StoreTime{At: page.Now, Elapsed: answered}
		}
		before := len(entries)
		entries = slices.Grow(entries, len(page.Objects))
		for _, o := range page.Objects {
			if k := l.keys.Kind(o.Key); k != wire.KindUnknown {
				e := s.See(o, k, answered)
				e.Listed = sent
				entries = append(entries, e)
			}
		}
		for batch := range slices.Chunk(entries[before:], readBatch) {
			adopt(page, batch) // kept bounds the bodies in memory
			l.readAll(ctx, batch, false, nil)
			for _, e := range batch {
				kept.Add(e)
			}
		}
		if cursor = page.Next; cursor == "" {
			return entries, st, ctx.Err()
		}
	}
}
