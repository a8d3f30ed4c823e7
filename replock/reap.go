package replock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// reap deletes the stale locks that conflict, and waits for the answers. So a holder that comes
// back and finds its flag can be sure that no client has passed it.
//
// A stale lock.exclusive stays. An exclusive acquirer's claim overwrites it. A shared acquirer must
// not touch it, because a client of the original protocol can have put a live one there since it
// was read. A holder of this protocol has an intent as well, which is reaped. A holder of the
// original protocol looks at neither.
func (l *Locker) reap(ctx context.Context, t *try, f findings) error {
	var pointer, dead []*entry
	for _, e := range f.stale {
		if e.kind != kindExclusive {
			dead = append(dead, e)
		} else if t.mode == Exclusive {
			pointer = append(pointer, e)
		}
	}
	r := removal{l: l, progress: l.progress(t, EventReaping, len(dead))}
	for chunk := range slices.Chunk(dead, store.MaxBatch) {
		gone := r.remove(ctx, chunk)
		if len(r.failed) == 0 {
			gone, pointer = append(pointer, gone...), nil
		}
		l.reaped(t, f, gone)
	}
	if len(r.failed) > 0 {
		return unsure(fmt.Errorf("removing stale locks: %w", fault.Join(r.failed...)))
	}
	l.reaped(t, f, pointer)
	return nil
}

// reaped reports entries that were removed.
func (l *Locker) reaped(t *try, f findings, gone []*entry) {
	if len(gone) > 0 {
		e := t.event(EventReaped)
		e.Holders = l.infos(gone, f)
		l.tell(e)
	}
}

// An empty file with this suffix can be one that another program is about to write and rename. It
// is left alone until it is older than any error of a clock.
const (
	temporary = ".tmp"
	abandoned = 24 * time.Hour
)

// unfinished reports whether an entry can be such a file.
func (e *entry) unfinished(st storeTime, now time.Duration) bool {
	age, ok := e.age(st, now)
	return strings.HasSuffix(e.Key, temporary) && (!ok || age <= abandoned)
}
