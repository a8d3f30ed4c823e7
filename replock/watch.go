package replock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// watch looks at a held lock every Options.Look until ctx ends: docs/evidence/protocol.md, Watch. A look notices a
// broken lock soon, however long the ttl is. It also notices that a hypervisor has paused the machine, although the
// lease still lasts by all clocks of this machine.
//
// A look that fails changes nothing: the lease lasts until its deadline.
func (k *term) watch(ctx context.Context) {
	c := k.l.opts.Clock
	unwritten, again := k.firstWrite()
	next := k.firstLook(k.Seen().Elapsed)
	w := clock.NewWatch(c)
	defer w.Stop()
	for pause := firstPoll; ; {
		if unwritten && c.Elapsed() >= again {
			unwritten = k.Renew(ctx) != nil // after a loss, ctx ends
			again = c.Elapsed() + firstPoll
		}
		wait := k.untilLook(next)
		if unwritten {
			wait = min(wait, again-c.Elapsed())
		}
		if w.Sleep(ctx, wait) != nil {
			return
		}
		now := clock.Read(c)
		if now.Elapsed >= k.end() {
			// The lock is lost, and ctx ends, unless a refresh is just extending the lease.
			next = now.Elapsed + firstPoll
			continue
		}
		if now.Elapsed < next && !now.SteppedSince(k.Seen()) {
			continue
		}
		switch err := k.look(ctx); {
		case err == nil:
			pause = firstPoll
			next = k.nextLook(now.Elapsed)
		case errors.Is(err, ErrLost):
			k.Fail(err)
			return
		case errors.Is(err, errMightWithdraw):
			next = c.Elapsed() + verdict.Transient
		default:
			next = c.Elapsed() + pause
			pause = min(2*pause, k.l.opts.Look)
		}
	}
}

// firstWrite reports whether the first refresh must come early, and when it is due. It is due now if the flag has a
// wrong date, because the wall clock is behind the store's. For an exclusive lock it is due in a second, because
// acquirers that came at the same time wait until the flag has the state held.
func (k *term) firstWrite() (bool, time.Duration) {
	now := k.l.opts.Clock.Elapsed()
	if k.l.behind(*k.now.Load()) > verdict.Margin {
		return true, now
	}
	return k.t.mode == Exclusive, now + firstPoll
}

// firstLook returns when the first look after the acquire is due. For a lock without a name it is due after one to two
// seconds. A client of the original protocol can have looked before our put and written after our look.
func (k *term) firstLook(sent time.Duration) time.Duration {
	next := k.nextLook(sent)
	if k.l.opts.Name == "" {
		next = min(next, sent+time.Second+k.l.jitter(time.Second/2))
	}
	return next
}

// untilLook returns the pause until a look that is due at next. After a step of the wall clock the command is stopped until
// a look is answered, so looks that fail are then repeated without longer pauses.
func (k *term) untilLook(next time.Duration) time.Duration {
	now := clock.Read(k.l.opts.Clock)
	if now.SteppedSince(k.Seen()) {
		return min(next-now.Elapsed, clock.Tick)
	}
	return next - now.Elapsed
}

// nextLook returns when the next look is due, after a look that was sent at the given time. It subtracts a random time,
// so that many holders don't look at the same time.
func (k *term) nextLook(sent time.Duration) time.Duration {
	return sent + k.l.opts.Look - k.l.jitter(k.l.opts.Look/20)
}

// look returns nil if our objects are stored and unchanged by others, and no client of another protocol has acquired a
// conflicting lock. It costs one list request, or two in a crowd, and one more for each of our objects that isn't on
// the first page.
func (k *term) look(ctx context.Context) error {
	began := clock.Read(k.l.opts.Clock)
	page, err := k.glance(ctx)
	if err != nil {
		return err
	}
	answered := k.l.opts.Clock.Elapsed()
	k.learn(verdict.StoreTime{At: page.Now, Elapsed: answered})
	times := lookTimes{sent: began, answered: answered, store: page.Now}
	flag, err := k.confirmListed(ctx, page, began.Elapsed)
	if err != nil {
		return err
	}
	if flag != nil {
		times.written, times.whole = flag.ModTime, k.flags.unbroken(flag.ETag, flag.ModTime)
	}
	select {
	case k.others.turn <- struct{}{}:
		defer func() { <-k.others.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	k.others.memory.Forget(page, "")
	if err := k.stoodStill(ctx, times); err != nil {
		return err // the next look fails again
	}
	if err := k.dropSeconds(ctx, false); err != nil && err != errNotYet {
		k.l.opts.Logger.Warn("a second flag of a held lock isn't deleted yet", "err", err)
	}
	return k.foreign(ctx, page, began.Elapsed, answered)
}

// confirmListed returns nil if our objects are stored and unchanged by others, and the flag as it is listed. page is a
// listing's first page, whose request was sent at the given time. An object that belongs on a later page costs one more
// request.
func (k *term) confirmListed(ctx context.Context, page store.Page, sent time.Duration) (*store.Object, error) {
	flag, pointer := k.objects()
	var listed *store.Object
	for _, o := range k.ofMode(&flag, &pointer) {
		seen, ok := verdict.InPage(page, o.key)
		if !ok {
			var err error
			if seen, err = k.find(ctx, o.key); err != nil {
				return nil, err
			}
		}
		if err := k.confirmSeen(ctx, o, seen); err != nil {
			return nil, err
		}
		if o == &flag {
			listed = seen
		}
	}
	k.objectsSeen.Store(int64(sent))
	return listed, nil
}

// glance returns the page that a look judges: the first page of the listing of all locks. If there are many locks, a
// shared holder's page has only lock.exclusive and its own flag, so that the cost doesn't grow with the number of
// locks.
func (k *term) glance(ctx context.Context) (store.Page, error) {
	if k.t.mode == Exclusive || !k.others.crowded.Load() {
		page, err := k.firstPage(ctx, k.l.keys.All())
		k.others.crowded.Store(len(page.Objects) > crowd)
		return page, err
	}
	page, err := k.firstPage(ctx, k.l.keys.Exclusive())
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
	return ask(ctx, &k.renewer, "list "+prefix, func(ctx context.Context) (store.Page, error) { return k.l.page(ctx, prefix, "") })
}

// foreign returns a *LostError if a client of another protocol holds a conflicting lock. Such a lock counts as held if
// it is so old that its owner won't withdraw it any more, unless it is certainly stale. Our acquire has reaped all
// stale locks, except for the lock.exclusive that a shared acquirer leaves. So any other conflicting lock was put
// since.
//
// foreign returns another error if a lock can't be read. It returns errMightWithdraw if a lock was just put, or is
// listed although a read doesn't find it. It judges only this page. But if a listed lock was replaced meanwhile, as
// lock.exclusive can be, it judges a newer listing, up to maxAgain times.
func (k *term) foreign(ctx context.Context, page store.Page, sent, answered time.Duration) error {
	for again := maxAgain; ; again-- {
		d, vanished, err := k.judgeForeign(ctx, page, sent, answered)
		if err != nil || len(vanished) == 0 {
			return cmp.Or(err, d.err())
		}
		sent = k.l.opts.Clock.Elapsed()
		if page, err = k.firstPage(ctx, k.conflicting()); err != nil {
			return err
		}
		answered = k.l.opts.Clock.Elapsed()
		if k.t.mode == Exclusive { // the page has our objects, too
			if _, err := k.confirmListed(ctx, page, sent); err != nil {
				return err
			}
		}
		replaced := false
		for _, s := range vanished { // a listing counts more than a read
			o, _ := verdict.InPage(page, s.Key)
			replaced = replaced || o != nil && o.ETag != s.ETag
			if o != nil && o.Size > 0 {
				d.add(s.settled, fault.Errorf("%s: %w", s.Key, s.Err))
			}
		}
		if !replaced || again == 0 {
			return d.err()
		}
	}
}

// suspect is a conflicting lock of a client of another protocol. It is settled if it is so old that its owner won't
// withdraw it any more.
type suspect struct {
	*verdict.Entry
	settled bool
}

// judgeForeign judges the suspects of a page. It returns a *LostError if one of them is held. vanished are the suspects
// that a read didn't find.
func (k *term) judgeForeign(ctx context.Context, page store.Page, sent, answered time.Duration) (d doubt, vanished []suspect, err error) {
	suspects := k.suspects(ctx, page, answered)
	now := *k.now.Load() // after the reads: a refresh can have improved the bound meanwhile
	for _, e := range suspects {
		age, _ := e.Age(now, sent) // rounding of mod times can add up to margin
		s := suspect{e, e.Changed || age > verdict.Transient+verdict.Margin || answered-e.Since >= verdict.Transient}
		switch {
		case errors.Is(e.Err, verdict.ErrVanished):
			e.Read = false // the next look reads it again
			vanished = append(vanished, s)
			continue
		case errors.Is(e.Err, verdict.ErrUnread):
			e.Read = false
			d.add(s.settled, e.Err)
			continue
		case e.Err == nil && e.Lease.ID != "":
			continue
		}
		k.l.judges().Judge(e, now, sent)
		switch {
		case e.Verdict == verdict.Stale || e.Verdict == verdict.Released:
		case s.settled:
			return d, nil, k.broken(e.Key, fmt.Sprintf("a client that doesn't keep to this protocol has acquired a conflicting lock: %s, operation %s",
				text.Or(e.Lease.Holder, "unknown"), text.Or(e.Lease.Operation, "unknown")))
		default:
			d.young = true
		}
	}
	return d, vanished, nil
}

// conflicting is the prefix of the keys of all locks that conflict with ours.
func (k *term) conflicting() string {
	if k.t.mode == Exclusive {
		return k.l.keys.All()
	}
	return k.l.keys.Exclusive()
}

// suspects returns the conflicting locks on a page that have no id of this protocol, and reads their bodies.
func (k *term) suspects(ctx context.Context, page store.Page, answered time.Duration) (suspects []*verdict.Entry) {
	conflicts := wire.KindExclusive
	if k.t.mode == Exclusive {
		conflicts = wire.KindShared
	}
	for _, o := range page.Objects {
		if k.l.keys.Kind(o.Key) != conflicts || o.Size == 0 || k.t.keys[o.Key] || k.l.keys.IsTicket(o.Key) {
			continue
		}
		if e := k.others.memory.See(o, conflicts, answered); e != k.t.leftPointer && !e.HasID() {
			suspects = append(suspects, e)
		}
	}
	adopt(page, suspects)
	k.l.readAll(ctx, suspects, false, nil)
	return suspects
}

// doubt is why a look can't rule out a conflict. young: a conflicting lock was just put. unknown: the error because of
// which an older conflicting lock couldn't be read.
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
		return errMightWithdraw
	}
	return d.unknown
}

// lookTimes are the times of one look, on this machine's clocks and on the store's.
type lookTimes struct {
	sent     clock.Reading // this machine's clocks, before the request was sent
	answered time.Duration // Clock.Elapsed, after the answer came
	store    time.Time     // the store's clock, when it made the page; zero if the page doesn't have it
	written  time.Time     // by the store's clock: the mod time of our flag
	whole    bool          // our flag was stored without a gap until then
}

// stoodStill refreshes the lock at once if this machine stood still, because then other clients might have judged the
// lock stale. Three facts can show that. Between two pages, the store's clock has advanced by more than ours. Our wall
// clock was stepped since the last look that showed the lock. Or the store has dated our flag over a ttl after the
// version before. A step of the store's clock looks the same.
func (k *term) stoodStill(ctx context.Context, t lookTimes) error {
	if proved := k.seconds.page.Swap(nil); proved != nil {
		k.others.note(*proved)
	}
	last := k.others.last
	ofStore := k.l.store.Properties().StoreClock
	comparable := !t.store.IsZero() && !last.store.IsZero() && ofStore
	paused := comparable && last.ahead(t.store, t.answered) > verdict.Margin
	late := ofStore && !t.whole && !t.written.IsZero() && k.reapable(t.written)
	now := pageTime{store: t.store, sent: t.sent.Elapsed, refreshed: k.sent()}
	if !paused && !late && !t.sent.SteppedSince(k.Seen()) {
		k.saw(t.sent)
		k.others.note(now)
		return nil
	}
	var ended time.Time
	if comparable {
		ended = k.leaseEnd(last, t)
	}
	if k.overdue(t.store, ended) {
		// A flag that was written after the end might have been put back, unless a second flag proves the opposite.
		if t.written.After(ended) && !k.underSecond() {
			return k.overdueLoss()
		}
		k.seconds.wanted.Store(true)
	}
	if err := k.reassure(ctx, ended); err != nil {
		return err
	}
	k.others.note(now)
	return nil
}

// leaseEnd returns when the lease ends on the store's clock if no refresh follows. The ttl counts from the last refresh
// before the last page, or from a later refresh that the store applied in time.
func (k *term) leaseEnd(last pageTime, t lookTimes) time.Time {
	ended := last.store.Add(last.refreshed - last.sent + k.l.opts.TTL)
	if later := t.written.Add(k.l.opts.TTL); (t.whole || t.written.Before(ended.Add(-verdict.Margin))) && later.After(ended) {
		return later
	}
	return ended
}

// overdue reports whether the lease had ended on the store's clock, unless If-Match is relied on. Without If-Match, a
// refresh can put our flag back just after another holder has deleted it. If that holder has released its lock since,
// no later look shows that it held one. A refresh with If-Match puts nothing back.
func (k *term) overdue(now, ended time.Time) bool {
	return !now.IsZero() && !ended.IsZero() && !now.Before(ended.Add(-verdict.Margin)) && !k.l.conditions.match.holds()
}

func (k *term) overdueLoss() *LostError {
	return k.broken(k.t.flag.key, stoodStillOr+"another client might have held the lock before its refresh was stored")
}

// reassure returns nil if the lock is held although this machine might have stood still. It first refreshes the lock,
// because another acquirer could reap the lock just after a look. Then it looks for other locks as an acquirer does,
// because another acquirer might have reaped our flag just before the refresh put it back. ended is when the lease
// would have ended on the store's clock without the refresh, or zero if that is unknown.
func (k *term) reassure(ctx context.Context, ended time.Time) error {
	began := clock.Read(k.l.opts.Clock)
	if err := k.Renew(ctx); err != nil {
		return err
	}
	t := k.asAttempt()
	switch err := k.lookAgain(ctx, t); { // our flag is live, so a later acquirer withdraws
	case errors.Is(err, errUnlisted):
		return k.broken(t.flag.key, stoodStillOr+"another client deleted the lock")
	case errors.Is(err, errCopied):
		return k.copied(t.flag.key)
	case err != nil:
		return err
	}
	if k.overdue(t.first.store, ended) && k.seconds.page.Load() == nil {
		return k.overdueLoss()
	}
	// Another acquirer might have acquired and released its lock before our look reached the page of our flag.
	seen, err := k.confirm(ctx, &t.flag)
	if err != nil {
		return err
	}
	k.flags.trust(seen) // it is refreshed, and no other client holds a lock
	k.Saw(began)
	return nil
}
