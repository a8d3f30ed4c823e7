package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// sightings are the locks of others that a holder's looks have shown. Only one look at a time uses
// them.
type sightings struct {
	turn   chan struct{}
	memory memory
	last   pageTime // of the last page that had the store's time
	// crowded is whether listing all locks is expensive, as of the last listing of all.
	crowded *atomic.Bool
}

// crowd is the number of lock objects above which a shared holder's look lists as little as
// possible. Otherwise the cost of n holders' looks would grow with n². The number is a guess at the
// cost of a second request.
const crowd = 100

// newSightings begins with the results of the acquire: the store's time, and the lock.exclusive
// that the acquirer has passed, with the time since when that is unchanged.
func newSightings(t *try) sightings {
	s := sightings{turn: make(chan struct{}, 1), memory: memory{}, last: t.page, crowded: new(atomic.Bool)}
	s.crowded.Store(t.page.objects > crowd)
	if t.passed != nil {
		s.memory[t.passed.Key] = t.passed
	}
	return s
}

// pageTime is a page's time on the store's clock. In the zero value it is unknown.
type pageTime struct {
	now     time.Time
	asked   time.Duration // when the request for the page was sent
	leased  time.Duration // when the last refresh before that was sent
	objects int           // the number of objects on the page
}

// stood returns how much further the store's clock has advanced than ours, from this page to a
// later one that has the time now.
func (p pageTime) stood(now time.Time, answered time.Duration) time.Duration {
	return now.Sub(p.now) - (answered - p.asked)
}

// look returns nil if our objects are stored and ours, and if no client of another protocol was let
// in beside us. It costs one list request, or two in a crowd, and one more for each of our objects
// that isn't on the first page.
func (k *term) look(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	page, err := k.glance(ctx)
	if err != nil {
		return err
	}
	answered := k.l.opts.Clock.Elapsed()
	k.learn(storeTime{page.Now, answered})
	flag, exclusive := k.objects()
	var written time.Time // mod time of the flag
	for _, o := range k.ofMode(&flag, &exclusive) {
		seen, ok := inPage(page, o.key)
		if !ok {
			if seen, err = k.find(ctx, o.key); err != nil {
				return err
			}
		}
		if err := k.confirmSeen(ctx, o, seen); err != nil {
			return err
		}
		if o == &flag && seen != nil {
			written = seen.ModTime
		}
	}
	k.shown.Store(int64(began.Elapsed))
	select {
	case k.others.turn <- struct{}{}:
		defer func() { <-k.others.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.others.memory.forget(page, "")
	if err := k.stoodStill(ctx, page, began, answered, written); err != nil {
		return err // the next look fails again
	}
	return k.foreign(ctx, page, began.Elapsed, answered, maxAgain)
}

// glance returns the page that a look judges: the first one of all locks. In a crowd a shared
// holder's page has only lock.exclusive and its own flag, so that the cost doesn't grow with the
// number of others.
func (k *term) glance(ctx context.Context) (store.Page, error) {
	if k.t.mode == Exclusive || !k.others.crowded.Load() {
		page, err := k.firstPage(ctx, k.l.keys.all())
		k.others.crowded.Store(len(page.Objects) > crowd)
		return page, err
	}
	page, err := k.firstPage(ctx, k.l.keys.exclusive())
	if err != nil || page.Next != "" {
		return page, err
	}
	flag, err := ask(ctx, &k.renewer, "get "+k.t.flag.key, k.l.fetch(k.t.flag.key))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return page, nil
	case errors.Is(err, store.ErrTooLarge):
		flag, err = content{}, nil // not our body: look reads it again and reports the loss
	}
	flag.object.Key = k.t.flag.key
	page.Objects = append(page.Objects, flag.object)
	return page, err
}

func (k *term) firstPage(ctx context.Context, prefix string) (store.Page, error) {
	return ask(ctx, &k.renewer, "list "+prefix, func(ctx context.Context) (store.Page, error) { return k.l.store.List(ctx, prefix, "") })
}

// inPage returns the object that a page of a listing shows under a key, or nil. ok is false if the
// key belongs on a later page.
func inPage(page store.Page, key string) (*store.Object, bool) {
	for i, o := range page.Objects {
		if o.Key == key {
			return &page.Objects[i], true
		}
	}
	return nil, covers(page, key)
}

// covers reports whether a key belongs on this page or an earlier one.
func covers(page store.Page, key string) bool {
	n := len(page.Objects)
	return page.Next == "" || n > 0 && page.Objects[n-1].Key > key
}

// foreign returns a *LostError if a conflicting lock of a client of another protocol has been
// stored for longer than one that is about to be withdrawn. This lock's acquire has reaped all that
// it passed, but for the lock.exclusive that a shared lock leaves. So any other conflicting lock
// was put since, and counts as held unless it is certainly stale. foreign returns another error if
// a lock can't be read, and errAgain if one has just come, or is listed although a read doesn't
// find it. It judges only this page. But if another lock has come in place of a listed one, as
// lock.exclusive can, it judges a later page, up to again times.
func (k *term) foreign(ctx context.Context, page store.Page, sent, answered time.Duration, again int) error {
	conflicts, prefix := kindExclusive, k.l.keys.exclusive()
	if k.t.mode == Exclusive {
		conflicts, prefix = kindShared, k.l.keys.all()
	}
	var suspects []*entry
	for _, o := range page.Objects {
		if k.l.keys.kind(o.Key) != conflicts || o.Size == 0 || k.t.keys[o.Key] {
			continue
		}
		if e := k.others.memory.see(o, conflicts, answered); e != k.t.passed && !e.hasID() {
			suspects = append(suspects, e)
		}
	}
	k.l.readAll(ctx, suspects, false, nil)
	now := *k.now.Load()
	var d doubt
	vanished := map[*entry]bool{} // listed and missing when read; true if settled
	for _, e := range suspects {
		age, known := e.age(now, sent) // rounding of mod times can add up to margin
		settled := e.changed || known && age > transient+margin || answered-e.since >= transient
		if errors.Is(e.err, errVanished) {
			e.read = false // the next look reads it again
			vanished[e] = settled
			continue
		}
		if errors.Is(e.err, errUnread) {
			e.read = false
			d.add(settled, e.err)
			continue
		}
		if e.err == nil && e.lease.ID != "" {
			continue
		}
		k.l.judge(e, now, sent)
		if e.verdict == Stale || e.verdict == Released {
			continue
		}
		if settled {
			return k.broken(e.Key, fmt.Sprintf("a client that doesn't keep to this protocol has acquired a conflicting lock: %s, operation %s",
				text.Or(e.lease.Holder, "unknown"), text.Or(e.lease.Operation, "unknown")))
		}
		d.young = true
	}
	if len(vanished) > 0 { // a listing outweighs a read
		sent := k.l.opts.Clock.Elapsed()
		later, err := k.firstPage(ctx, prefix)
		if err != nil {
			return err
		}
		for e, settled := range vanished {
			o, _ := inPage(later, e.Key)
			if o != nil && o.ETag != e.ETag && again > 0 {
				return k.foreign(ctx, later, sent, k.l.opts.Clock.Elapsed(), again-1)
			}
			if o != nil && o.Size > 0 {
				d.add(settled, fmt.Errorf("%s: %w", e.Key, e.err))
			}
		}
	}
	return d.err()
}

// doubt is what a look couldn't find out about conflicting locks. young: one has just come.
// unknown: why it isn't known whether an older one keeps to this protocol.
type doubt struct {
	young   bool
	unknown error
}

func (d *doubt) add(settled bool, why error) {
	if settled {
		d.unknown = why
	} else {
		d.young = true
	}
}

func (d *doubt) err() error {
	if d.unknown == nil && d.young {
		return errAgain
	}
	return d.unknown
}

// hasID reports whether an entry is known to be of a client of this protocol. Only its owner writes
// a flag, so an earlier version is enough.
func (e *entry) hasID() bool {
	return (e.read || e.carried) && e.err == nil && e.lease.ID != ""
}
