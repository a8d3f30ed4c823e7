package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// watch looks at a held lock each Options.Look, until ctx ends: PROTOCOL.md, Look.
// So a break is noticed soon, whatever the ttl, and so is a machine that its
// hypervisor has paused, whose clocks all believe that the lease still lasts.
//
// A look that fails changes nothing: the lease lasts until its deadline.
func (k *Lock) watch(ctx context.Context) {
	c := k.l.opts.Clock
	// That the wall clock is behind wasn't known when the lock was dated.
	misdated, again := k.l.behind(*k.now.Load()) > margin, c.Elapsed()
	next := k.firstLook(k.Seen().Elapsed)
	for pause := firstPoll; ; {
		if misdated && c.Elapsed() >= again {
			misdated = k.refresher.Now(ctx, k.done) != nil // a loss ends it
			again = c.Elapsed() + firstPoll
		}
		if clock.Sleep(ctx, c, min(max(next-c.Elapsed(), 0), clock.Tick)) != nil {
			return
		}
		now := clock.Read(c)
		if now.Elapsed >= k.Deadline() {
			return // it is lost: there is nothing to look at
		}
		parted := now.Parted(k.Seen())
		if now.Elapsed < next && !parted {
			continue
		}
		var err error
		if parted {
			err = k.reassure(ctx)
		} else {
			err = k.look(ctx)
		}
		switch {
		case err == nil:
			pause = firstPoll
			next = k.nextLook(now.Elapsed)
		case errors.Is(err, ErrLost):
			k.stop(err)
			return
		case errors.Is(err, errAgain):
			next = c.Elapsed() + transient
		default:
			next = c.Elapsed() + pause
			pause = min(2*pause, k.l.opts.Look)
		}
	}
}

// firstLook is when the first look is due after the one that the lock was acquired with: one
// to two seconds later where there can be clients of the original protocol. One of them can
// have looked before ours put its flag, and written after ours had looked.
func (k *Lock) firstLook(sent time.Duration) time.Duration {
	next := k.nextLook(sent)
	if k.l.opts.Name == "" {
		next = min(next, sent+time.Second+k.l.jitter(time.Second/2))
	}
	return next
}

// nextLook is when the next look is due after one that was sent at the given time: a
// little early, each time another, so that many holders don't look at once.
func (k *Lock) nextLook(sent time.Duration) time.Duration {
	return sent + k.l.opts.Look - k.l.jitter(k.l.opts.Look/20)
}

// errAgain: a look saw what may be an acquirer that is about to withdraw.
var errAgain = errors.New("looking again")

// Seen is when the last look at the lock, or refresh, was sent that was answered,
// with what the clocks of this machine said. If they have moved apart since (see
// clock.Reading), what the lock protects must stop until they are seen again.
func (k *Lock) Seen() clock.Reading { return *k.seen.Load() }

// sightings are what a holder's looks have seen of others. One look at a time
// keeps them.
type sightings struct {
	turn  chan struct{}
	sight sight
	st    storeTime // the best lower bound of the store's clock
	last  told      // by the last page that told it
	// crowded: there are, or were, so many locks that listing all of them isn't cheap.
	crowded *atomic.Bool
}

// crowd is from how many lock objects on that a shared holder's look asks for no more than it
// needs: otherwise what n holders list would grow with the square of n. It is a guess at what
// costs as much as a second request.
const crowd = 100

// newSightings begins with what the acquire knows: the store's time, and since when the
// lock.exclusive that it has passed stands there unchanged.
func newSightings(t *try) sightings {
	s := sightings{turn: make(chan struct{}, 1), sight: sight{}, st: t.st, last: t.page, crowded: new(atomic.Bool)}
	s.crowded.Store(t.page.objects > crowd)
	if t.passed != nil {
		s.sight[t.passed.Key] = t.passed
	}
	return s
}

// told is the store's time as a page told it. The zero value is none.
type told struct {
	now    time.Time
	asked  time.Duration // when the page was asked for
	leased time.Duration // when the last refresh was sent by then
	// objects is how many it had.
	objects int
}

// look returns nil if our objects are there and ours, and no client that doesn't keep
// to this protocol was let in beside us. It is one list request, or two where there are
// many locks, and for each of our objects one more if the first page ends before it.
func (k *Lock) look(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	page, err := k.glance(ctx)
	if err != nil {
		return err
	}
	answered := k.l.opts.Clock.Elapsed()
	flag, exclusive := k.objects()
	var written time.Time // the flag
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
	select {
	case k.others.turn <- struct{}{}:
		defer func() { <-k.others.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.others.learn(page, answered)
	if st := k.others.st; st.known() {
		k.now.Store(&st) // a refresh may come of it
	}
	if err := k.stoodStill(ctx, page, began, answered, written); err != nil {
		return err // and the next look finds it out again
	}
	return k.foreign(ctx, page, began.Elapsed, answered)
}

// glance is the page that a look judges: the first one of all locks, or, in a crowd, what
// concerns a shared holder: lock.exclusive, and its flag, by a request that doesn't cost more
// the more others there are.
func (k *Lock) glance(ctx context.Context) (store.Page, error) {
	if k.t.mode == Exclusive || !k.others.crowded.Load() {
		page, err := k.firstPage(ctx, k.l.keys.all())
		k.others.crowded.Store(len(page.Objects) > crowd)
		return page, err
	}
	page, err := k.firstPage(ctx, k.l.keys.exclusive())
	if err != nil || page.Next != "" {
		return page, err
	}
	flag, err := ask(ctx, k, "get "+k.t.flag.key, func(ctx context.Context) (store.Object, error) {
		_, o, err := k.l.store.Get(ctx, k.t.flag.key, maxBody)
		return o, err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return page, nil
	case errors.Is(err, store.ErrTooLarge):
		flag, err = store.Object{}, nil // not as we know it: look will see what it is
	}
	flag.Key = k.t.flag.key
	page.Objects = append(page.Objects, flag)
	return page, err
}

func (k *Lock) firstPage(ctx context.Context, prefix string) (store.Page, error) {
	return ask(ctx, k, "list "+prefix, func(ctx context.Context) (store.Page, error) { return k.l.store.List(ctx, prefix, "") })
}

// reassure returns nil if the lock is held although this machine may have stood still:
// then it isn't known how much of the lease was left. It renews the lease, since to
// find the lock in its place isn't enough: another acquirer may pass it the moment
// after. And it looks for others, as an acquirer does when it has put its flag, since
// one that has passed may have deleted ours just before the refresh put it back.
func (k *Lock) reassure(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	if err := k.refresher.Now(ctx, k.done); err != nil {
		return err
	}
	flag, exclusive := k.objects()
	t := &try{
		mode: k.t.mode, operation: k.t.operation, id: k.t.id, mine: k.t.mine,
		flag: flag, exclusive: exclusive, trips: k.t.trips, deadline: k.Deadline(),
	}
	if err := k.lookAgain(ctx, t); err != nil { // our flag is live: who comes now withdraws

		return err
	}
	k.seen.Store(&began)
	return nil
}

// saw notes when the lock was seen, unless the clocks have parted since it was last:
// then only reassure may.
func (k *Lock) saw(r clock.Reading) {
	if !r.Parted(k.Seen()) {
		k.seen.Store(&r)
	}
}

// inPage returns what the first page of a listing shows of a key: nothing if there is
// no such object. It is false if the key belongs on a later page.
func inPage(page store.Page, key string) (*store.Object, bool) {
	for i, o := range page.Objects {
		if o.Key == key {
			return &page.Objects[i], true
		}
	}
	n := len(page.Objects)
	return nil, page.Next == "" || n > 0 && page.Objects[n-1].Key > key
}

// stoodStill deals with a machine that didn't run for a time which its own clocks don't
// count: the store's has gone further between two pages than they can have. Then the lock
// is refreshed at once, since it may already be stale for others. If its flag was written
// after the lease had ended on the store's clock, by a refresh that had looked before and
// put after the pause, then another holder may have come and gone in between: it is lost.
// Where If-Match can be relied on no refresh does that.
func (k *Lock) stoodStill(ctx context.Context, page store.Page, began clock.Reading, answered time.Duration, written time.Time) error {
	now, last := told{now: page.Now, asked: began.Elapsed, leased: k.sent()}, k.others.last
	still := now.now.Sub(last.now) - (answered - last.asked)
	if now.now.IsZero() || last.now.IsZero() || still <= margin || !k.l.store.Properties().StoreClock {
		k.saw(began)
		if !now.now.IsZero() {
			k.others.last = now
		}
		return nil
	}
	ended := last.now.Add(last.leased - last.asked + k.l.opts.TTL)
	if written.After(ended) && !k.l.conditions.match.holds() {
		return k.broken(k.t.flag.key, fmt.Sprintf("this machine stood still for %v, and the lease had ended before it was refreshed", still.Round(time.Second)))
	}
	err := k.reassure(ctx)
	if err == nil {
		k.others.last = now
	}
	return err
}

// learn takes the store's clock from a page.
func (s *sightings) learn(page store.Page, answered time.Duration) {
	now := storeTime{page.Now, answered}
	if now.known() && (!s.st.known() || now.when(answered).After(s.st.when(answered))) {
		s.st = now
	}
}

// foreign returns a LostError if a live lock of a client that doesn't keep to this
// protocol conflicts with ours, and stands there for longer than one that its
// acquirer is about to withdraw. Those that keep to it are never let in beside us.
func (k *Lock) foreign(ctx context.Context, page store.Page, sent, answered time.Duration) error {
	conflicts := kindExclusive
	if k.t.mode == Exclusive {
		conflicts = kindShared
	}
	var settled []*entry
	young := false
	for _, o := range page.Objects {
		if k.l.keys.kind(o.Key) != conflicts || o.Size == 0 || k.t.keys[o.Key] {
			continue
		}
		e := k.others.sight.see(o, conflicts, answered)
		age, known := e.age(k.others.st, sent)
		if e.changed || known && age > transient || answered-e.since >= transient {
			settled = append(settled, e)
		} else {
			young = true
		}
	}
	settled = settled[:min(len(settled), maxReported)]
	k.l.readAll(ctx, settled, false)
	for _, e := range settled {
		var failed readError
		if errors.Is(e.err, errVanished) || errors.As(e.err, &failed) {
			e.read = false // the next look tries again
			continue
		}
		if e.err == nil && e.lease.ID != "" {
			continue
		}
		if k.l.judge(e, k.others.st, sent); e.verdict == Live || e.verdict == Unreadable {
			return k.broken(e.Key, fmt.Sprintf("another client, which doesn't keep to this protocol, was let in beside it: %s, operation %s",
				orUnknown(e.lease.Holder), orUnknown(e.lease.Operation)))
		}
	}
	if young {
		return errAgain
	}
	return nil
}
