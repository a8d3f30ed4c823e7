package replock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// reap deletes the stale locks that stood in our way, and waits for the answers: a holder that
// comes back and finds its flag knows that no client has passed it.
//
// A stale lock.exclusive stays; an exclusive acquirer's claim overwrites it. A shared acquirer
// must not touch it, because a client of the original protocol can have put a live one there
// since it was read. Its holder has an intent, which is reaped, or looks at nothing.
func (l *Locker) reap(ctx context.Context, t *try, f findings) error {
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
		return unsure(fmt.Errorf("removing stale locks: %w", join(failed[:min(len(failed), 3)]...)))
	}
	e := t.event(EventReaped)
	e.Holders = l.infos(passed, f)
	l.tell(e)
	return nil
}

// An empty file with this suffix is one that another program is about to write and to rename. It
// stays until it is so old that no clock's error matters.
const (
	temporary = ".tmp"
	abandoned = 24 * time.Hour
)

// unfinished reports whether an entry can be such a file.
func (e *entry) unfinished(st storeTime, now time.Duration) bool {
	age, ok := e.age(st, now)
	return strings.HasSuffix(e.Key, temporary) && (!ok || age <= abandoned)
}

// maxSwept bounds how many emptied flags an acquire removes.
const maxSwept = 16 * atOnce

// sweep deletes flags that were emptied by clients that must not delete: they make the listings
// longer. No lock depends on it, so it stops at the first failure, and soon.
func (l *Locker) sweep(ctx context.Context, released []*entry) {
	ctx, cancel := context.WithTimeout(ctx, hastyTime)
	defer cancel()
	remove := func(e *entry) error {
		_, err := once(ctx, hastyTime, "delete "+e.Key, l.delete(e.Key))
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
