package replock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// reap deletes the stale locks that stood in our way, and waits for the
// answers: whoever passes a stale lock deletes it first, so that a holder that
// comes back and finds its flag knows that nobody has passed.
//
// A stale lock.exclusive stays: an exclusive acquirer's claim overwrites it, and a
// shared acquirer must not touch it, because a client of the original protocol may
// have put a live one there since it was read. It isn't needed for a holder to know
// that it was passed: one that keeps to this protocol has an intent, which is
// reaped, and the others look at nothing.
func (l *Locker) reap(ctx context.Context, t *try, f found) error {
	var passed, dead []*entry
	for _, e := range f.stale {
		if e.kind != kindExclusive {
			dead = append(dead, e)
		}
		if e.kind != kindExclusive || t.mode == Exclusive {
			passed = append(passed, e)
		}
	}
	if len(passed) == 0 {
		return nil
	}
	failed := make([]error, len(dead))
	each(dead, func(i int, e *entry) { failed[i] = l.remove(ctx, e.Key) })
	failed = slices.DeleteFunc(failed, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return unsure{fmt.Errorf("removing stale locks: %w", join(failed[:min(len(failed), 3)]...))}
	}
	l.tell(Event{
		Kind: EventReaped, Mode: t.mode, Operation: t.operation, ID: t.id, Key: t.flag.key,
		Holders: merge(l.infos(passed, f.st, f.now)),
	})
	return nil
}

// An empty file that another program is about to write and to rename is no lock that was
// released: it has this suffix, and stays until it is so old that no clock's error matters.
const (
	temporary = ".tmp"
	abandoned = 24 * time.Hour
)

// unfinished reports whether an entry may be such a file.
func (e *entry) unfinished(st storeTime, now time.Duration) bool {
	age, ok := e.age(st, now)
	return strings.HasSuffix(e.Key, temporary) && (!ok || age <= abandoned)
}

// maxSwept bounds what an acquire does about what others have left.
const maxSwept = 16 * parallel

// sweep deletes flags that were emptied by who may not delete: one is left by each
// backup of such a client, and if nobody removed them each listing would take
// longer than the one before. Nobody depends on it, so it ends at the first
// failure, and soon.
func (l *Locker) sweep(ctx context.Context, released []*entry) {
	ctx, cancel := context.WithTimeout(ctx, haste)
	defer cancel()
	remove := func(e *entry) error {
		_, err := once(ctx, haste, "delete "+e.Key, func(ctx context.Context) (nothing, error) {
			return nothing{}, l.store.Delete(ctx, e.Key)
		})
		return err
	}
	if len(released) == 0 || remove(released[0]) != nil {
		return
	}
	var failed atomic.Bool
	each(released[1:min(len(released), maxSwept)], func(_ int, e *entry) {
		if !failed.Load() && remove(e) != nil {
			failed.Store(true)
		}
	})
}
