package replock

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// poll is the time between the looks of one who watches.
const poll = time.Second

// watch looks on, with no flag raised, until none of the locks that may be stale
// is in doubt any more: it changed, and is live, or it was deleted, or it stayed
// as it is for its whole ttl, and is stale whatever any clock says. What they
// have become, the next attempt finds out.
func (l *Locker) watch(ctx context.Context, t *try, s sight, f found) error {
	l.tell(Event{
		Kind: EventWatching, Mode: t.mode, Operation: t.operation, ID: t.id, Key: f.doubtful[0].Key,
		Holders: merge(l.infos(f.doubtful, f.st, f.now)),
	})
	for len(f.doubtful) > 0 && len(f.live) == 0 {
		if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(poll)); err != nil {
			return fmt.Errorf("acquiring the %s lock: %w", t.mode, context.Cause(ctx))
		}
		var err error
		if f, err = l.look(ctx, t, s); err != nil {
			return fmt.Errorf("watching a lock that may be stale: %w", err)
		}
	}
	return nil
}
