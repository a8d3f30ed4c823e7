package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// look lists the flags of all clients after our flag was put, and returns the locks that conflict with ours: see enter.
// It reads bodies only of possible conflicts, and stops at the first page that has a live one.
func (l *Locker) look(ctx context.Context, t *attempt, s verdict.Memory) (verdict.Findings, error) {
	f := verdict.Findings{St: t.st}
	t.looked, t.listed = true, listed{}
	t.seen = clock.Read(l.opts.Clock)
	last := "" // last key of the previous page
	var reading *progress
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.All(), cursor)
		if err != nil {
			return f, err
		}
		f.Now = sent
		answered := l.opts.Clock.Elapsed()
		t.trips.list.note(answered - sent)
		t.lasted = answered - sent
		if err := l.slept(t, page, sent, answered); err != nil {
			return f, err
		}
		t.page = pageTime{store: page.Now, sent: sent, refreshed: t.sent, objects: len(page.Objects)}
		t.learn(page, cursor != "", answered)
		if seen, _ := verdict.InPage(page, t.flag.key); seen != nil {
			if err := l.proveFlag(ctx, t, *seen); err != nil {
				return f, err
			}
		}
		s.Forget(page, last)
		if n := len(page.Objects); n > 0 {
			last = page.Objects[n-1].Key
		}
		others, complete := l.others(t, s, page)
		l.notePage(t, page, complete)
		adopt(page, others)
		if len(others) > 0 && !t.st.Known() {
			if err := l.learnFromFlag(ctx, t); err != nil {
				return f, err
			}
		}
		f.St = t.st
		if err := l.judgeAll(ctx, t, &f, others, &reading); err != nil {
			return f, err
		}
		if len(f.Live) > 0 {
			f.Unlisted = t.listedAsPromised(page) != nil
			f.Unread = f.Unread || !complete && page.Next != ""
			return f, nil
		}
		if complete || page.Next == "" {
			return f, t.listedAsPromised(page)
		}
		cursor = page.Next
	}
}

// listedAsPromised returns errUnlisted if the last page of a look had to show our flag and didn't. A shared acquirer's
// look can end before that page.
func (t *attempt) listedAsPromised(page store.Page) error {
	if _, certain := verdict.InPage(page, t.flag.key); !t.flag.put || t.listed.flag || !certain {
		return nil
	}
	return fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
}

// proveFlag returns nil if our listed flag has a body that we sent. It reads the flag only if the flag doesn't have the
// ETag of our put. It returns errCopied if a copy of this process has written the flag. A ticket needs no proof, because
// it locks nothing.
func (l *Locker) proveFlag(ctx context.Context, t *attempt, seen store.Object) error {
	if t.polls || !t.flag.put || seen.Size == 0 || seen.ETag != "" && seen.ETag == t.flag.etag {
		return nil
	}
	c, err := l.get(ctx, t.flag.key)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && len(c.raw) == 0:
		return fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
	case err != nil && !errors.Is(err, store.ErrTooLarge):
		return err
	case err != nil || !t.wrote(t.flag.key, c.raw):
		return fmt.Errorf("%w (%s)", errCopied, t.flag.key)
	}
	t.flag.etag = c.object.ETag
	return nil
}

// learn takes the store's time from a page. The best source is the mod time of our own flag, because the store stamped
// it before it answered our put. The second best is the page's own time. A ticket on a later page can be listed for the
// first time long after its put. For a poll the page's time is then the better bound, and a poll decides nothing.
func (t *attempt) learn(page store.Page, later bool, answered time.Duration) {
	for _, o := range page.Objects {
		if o.Key == t.pointer.key {
			t.listed.pointer, t.listed.another = t.owns(o), !t.owns(o)
		}
		if o.Key != t.flag.key {
			continue
		}
		t.listed.flag = o.Size > 0
		if o.ModTime.IsZero() || t.polls && later && t.st.Known() {
			break
		}
		t.stamped(o.ModTime, answered)
		return
	}
	if !page.Now.IsZero() {
		t.st = verdict.StoreTime{At: page.Now, Elapsed: answered}
	}
}

// learnFromFlag takes the store's time from our own flag, if the pages so far have neither the flag nor a time.
func (l *Locker) learnFromFlag(ctx context.Context, t *attempt) error {
	own, err := l.find(ctx, t.flag.key)
	if err == nil && own != nil {
		t.stamped(own.ModTime, l.opts.Clock.Elapsed())
	}
	return err
}

// others returns the objects of a page that can conflict with ours. complete is true if no later page has one.
func (l *Locker) others(t *attempt, s verdict.Memory, page store.Page) (others []*verdict.Entry, complete bool) {
	answered := l.opts.Clock.Elapsed()
	for _, o := range page.Objects {
		k := l.keys.Kind(o.Key)
		if t.mode == Shared && l.keys.BehindIntents(o.Key) {
			return others, true
		}
		if !k.IsLock() || t.owns(o) {
			continue
		}
		e := s.See(o, k, answered)
		e.Marked = l.keys.IsTicket(o.Key)
		others = append(others, e)
	}
	return others, false
}

const (
	// maxReported is the number of likely conflicts that we read first. The error names their holders.
	maxReported = 16
	// readBatch is the number of other bodies that we read before we judge them. It doubles with each batch, up to
	// maxReadBatch, because after many stale locks more are likely.
	readBatch    = 4 * atOnce
	maxReadBatch = 16 * readBatch
	// manyAtOnce is the number of parallel requests if there are more than readBatch bodies to read.
	manyAtOnce = 4 * atOnce
)

// judgeAll reads and judges the entries of one page, and adds them to f. It reads the likely conflicts first. If one of
// them is live, as is usual, it doesn't read the others.
func (l *Locker) judgeAll(ctx context.Context, t *attempt, f *verdict.Findings, others []*verdict.Entry, reading **progress) error {
	likely, rest := t.likely(f, others)
	if *reading == nil && (!t.polls || t.sent == 0) { // a poll reads few bodies, but not before the first put
		*reading = l.progress(t, EventReading, countUnread(slices.Concat(slices.Concat(likely...), rest)))
	}
	defer func() { f.Ahead = append(f.Ahead, t.ahead(f, others)...) }()
	for size := readBatch; len(likely) > 0 || len(rest) > 0; {
		var batch []*verdict.Entry
		if len(likely) > 0 {
			batch, likely = likely[0], likely[1:]
		} else {
			n := min(size, len(rest))
			batch, rest = rest[:n], rest[n:]
			size = min(2*size, maxReadBatch)
		}
		l.readAll(ctx, batch, t.polls, *reading)
		for _, e := range batch {
			if err := l.sort(t, f, e); err != nil {
				return err
			}
		}
		if len(f.Live) > 0 && (len(likely) == 0 || slices.ContainsFunc(f.Live, t.yieldsTo)) {
			for _, e := range slices.Concat(slices.Concat(likely...), rest) {
				if !t.polls && f.Young(e) {
					f.More++
				}
				f.Unread = f.Unread || e.Kind != wire.KindExclusive && e.Size > 0 && !e.IsTicket()
			}
			return nil
		}
	}
	return nil
}

// likely returns the entries that a look reads first, because they probably conflict, in batches, and the rest. If a
// waiter is before us in the queue, an acquirer that waits reads only that waiter's ticket, and one lock to name its
// holder. Otherwise it begins with one lock, because it needs no other if it yields to that one. Then a poll reads the
// entries before its place, and another look the young ones, locks before tickets.
//
// The rest doesn't have the tickets that are certainly behind us, see isBehind.
func (t *attempt) likely(f *verdict.Findings, others []*verdict.Entry) (likely [][]*verdict.Entry, rest []*verdict.Entry) {
	others = slices.DeleteFunc(slices.Clone(others), func(e *verdict.Entry) bool { return t.isBehind(f, e) })
	var first, next []*verdict.Entry
	lock, ahead := t.firstLock(f, others), t.ahead(f, others)
	inLine := len(ahead) > 0 && t.waits
	if lock != nil && t.waits && (inLine || !t.polls) {
		first = append(first, lock)
	}
	if inLine {
		first = append(first, ahead[len(ahead)-1])
	}
	for _, tickets := range []bool{false, true} {
		for _, e := range others {
			switch {
			case e.IsTicket() != tickets || slices.Contains(first, e):
			case inLine:
				rest = append(rest, e)
			case t.polls && wire.Place(e.Key) <= t.place || !t.polls && len(next) < maxReported && f.Young(e):
				next = append(next, e)
			default:
				rest = append(rest, e)
			}
		}
	}
	for _, batch := range [][]*verdict.Entry{first, next} {
		if len(batch) > 0 {
			likely = append(likely, batch)
		}
	}
	return likely, rest
}

// yieldsTo reports whether Contender.Decide yields to a live entry, whatever the others are.
func (t *attempt) yieldsTo(e *verdict.Entry) bool {
	earlier := e.Kind == wire.KindIntent && !t.listed.pointer && wire.Place(e.Key) < wire.Place(t.flag.key)
	stays := e.Verdict == verdict.Unreadable || e.IsTicket() || e.Err == nil && e.Lease.State == wire.StateHeld
	return stays || t.mode == Exclusive && (earlier || t.queues && e.Kind == wire.KindShared)
}

// isBehind reports whether a look needs no read to ignore an entry: its key shows that it is the ticket of a waiter
// behind us. An old ticket must be read, because it might be stale, and must then be reaped. An emptied ticket must be
// read, too.
func (t *attempt) isBehind(f *verdict.Findings, e *verdict.Entry) bool {
	return e.Marked && e.Size > 0 && wire.Place(e.Key) > t.place && t.isFresh(f, e)
}

// isFresh reports whether the age of a ticket or a lock is unknown or below its ttl. If its body wasn't read, that is the
// default ttl or ours, whichever is longer.
func (t *attempt) isFresh(f *verdict.Findings, e *verdict.Entry) bool {
	ttl := e.TTL()
	if !e.Read && !e.Carried {
		ttl = max(wire.DefaultTTL, time.Duration(t.body.TTLSeconds*float64(time.Second)))
	}
	age, _ := e.Age(f.St, f.Now)
	return age < ttl
}

// ahead returns the tickets of the waiters before us, in the order of their places.
func (t *attempt) ahead(f *verdict.Findings, others []*verdict.Entry) (ahead []*verdict.Entry) {
	for _, e := range others {
		if t.isAfter(f, e) {
			ahead = append(ahead, e)
		}
	}
	slices.SortFunc(ahead, func(a, b *verdict.Entry) int { return strings.Compare(wire.Place(a.Key), wire.Place(b.Key)) })
	return ahead
}

// isAfter reports whether this attempt comes after an entry: the entry is the ticket of a waiter before us in the queue,
// as far as we know, and that waiter might be alive.
func (t *attempt) isAfter(f *verdict.Findings, e *verdict.Entry) bool {
	return e.IsTicket() && wire.Place(e.Key) < t.place && t.mightLive(f, e)
}

// mightLive reports whether an entry's object isn't empty, and isn't known to be stale.
func (t *attempt) mightLive(f *verdict.Findings, e *verdict.Entry) bool {
	return e.Size > 0 && e.Verdict != verdict.Stale && t.isFresh(f, e)
}

// firstLock returns the first entry that might be a live lock, or nil. A flag goes before lock.exclusive, whose body
// changes with each refresh.
func (t *attempt) firstLock(f *verdict.Findings, others []*verdict.Entry) (lock *verdict.Entry) {
	for _, e := range others {
		if t.mightLive(f, e) && !e.IsTicket() && (lock == nil || lock.Kind == wire.KindExclusive) {
			lock = e
		}
	}
	return lock
}

// sort judges one entry whose body was read, and adds it to f.
func (l *Locker) sort(t *attempt, f *verdict.Findings, e *verdict.Entry) error {
	switch {
	case errors.Is(e.Err, verdict.ErrVanished):
		e.PresumeLive(e.Err)
		f.Vanished = append(f.Vanished, e)
		return nil
	case errors.Is(e.Err, verdict.ErrUnread):
		// An unread lock counts as live only if it is young. Otherwise an old lock would look held for ever, and a
		// wrong configuration would make every lock look held.
		if !f.Young(e) || errors.Is(e.Err, store.ErrConfig) {
			e.Forget()
			return unsure(fault.While(fmt.Sprintf("reading the lock %q", e.Key), e.Err))
		}
		// A young lock isn't stale, unless its ttl is shorter than the default.
		e.PresumeLive(e.Err)
		f.Live = append(f.Live, e)
		return nil
	case e.Err == nil && t.wrote(e.Key, e.Raw):
		if e.Kind == wire.KindExclusive && e.Lease.ID == t.id {
			f.Ours, t.listed.pointer, t.listed.another = e, true, false
		} else if e.Kind == wire.KindExclusive {
			f.Pointer = e // written by an earlier attempt: this one must claim it again
		}
		return nil
	case e.Err == nil && e.Kind == wire.KindExclusive && e.Lease.ID == t.id && !t.polls:
		return fmt.Errorf("%w (%s)", errCopied, e.Key)
	}
	if errors.Is(e.Err, wire.ErrEncrypted) || e.Err == nil && e.Lease.ID == "" {
		l.neighbours.met()
	}
	l.judges().Judge(e, f.St, f.Now)
	f.Bodies.Add(e)
	if e.Kind == wire.KindExclusive {
		f.Pointer = e
	}
	if !t.isBefore(e) {
		f.Add(e)
	}
	return nil
}

// isBefore reports whether this attempt comes before an entry: the entry is the ticket of a waiter behind us in the
// queue. A ticket grants nothing: its owner looks again before it holds a lock.
func (t *attempt) isBefore(e *verdict.Entry) bool {
	return e.IsTicket() && wire.Place(e.Key) > t.place && e.Verdict != verdict.Stale && e.Verdict != verdict.Released
}

// countUnread returns the number of entries that were not read yet.
func countUnread(entries []*verdict.Entry) (n int) {
	for _, e := range entries {
		if !e.Read {
			n++
		}
	}
	return n
}

// adopt moves the bodies that a page already contains into the entries.
func adopt(page store.Page, entries []*verdict.Entry) {
	for _, e := range entries {
		if body := page.Bodies[e.Key]; !e.Read && len(body) > 0 && len(body) <= wire.MaxBody {
			e.Decode(body)
		}
		delete(page.Bodies, e.Key)
	}
}

// readAll reads the bodies that were not read yet. A poll skips an entry if we know an earlier version of its body.
// Once the store has failed, the remaining entries get the same error without a request.
func (l *Locker) readAll(ctx context.Context, entries []*verdict.Entry, polls bool, p *progress) {
	var unread []*verdict.Entry
	for _, e := range entries {
		if !e.Read && !(polls && e.Carried) {
			unread = append(unread, e)
		}
	}
	limit := atOnce
	if len(unread) > readBatch {
		limit = manyAtOnce
	}
	var down atomic.Pointer[error]
	parallel.Each(limit, len(unread), func(i int) {
		e := unread[i]
		if failed := down.Load(); failed != nil {
			e.Err = *failed
			return
		}
		l.read(ctx, e)
		if failed := e.Err; errors.Is(failed, verdict.ErrUnread) && !l.final(failed) {
			down.Store(&failed)
		}
		p.add(1)
	})
}

// read fetches and decodes the body of one entry. If the fetch fails, the next look reads the body again.
func (l *Locker) read(ctx context.Context, e *verdict.Entry) {
	e.Read = true
	c, err := l.get(ctx, e.Key)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && len(c.raw) == 0:
		e.Err = verdict.ErrVanished
	case err == nil:
		e.Decode(c.raw)
	case errors.Is(err, store.ErrTooLarge):
		e.Err = wire.ErrLarge
	case errors.Is(err, store.ErrInvalidKey), errors.Is(err, store.ErrIrregular):
		e.Err = err
		if failed, ok := errors.AsType[*store.Error](err); ok { // the entry has the same key
			e.Err = failed.Err
		}
	default:
		e.Err = fault.As(verdict.ErrUnread, err)
		e.Forget()
	}
}

// slept returns errStoodStill if the store's clock has advanced by more than ours since our flag was put, or between
// two looks of an attempt. Then this machine stood still, and its own clocks didn't count that. Others might have
// judged its flag stale. A server's Date can come from a proxy whose clock differs from the mod times. So slept
// compares the first page with the answer to the put, if that has a time.
func (l *Locker) slept(t *attempt, page store.Page, sent, answered time.Duration) error {
	if t.polls || page.Now.IsZero() || !l.store.Properties().StoreClock {
		return nil
	}
	was := t.first
	if was.store.IsZero() {
		t.first, was = pageTime{store: page.Now, sent: sent}, t.raised
	}
	if flag, _ := verdict.InPage(page, t.flag.key); was.store.IsZero() && flag != nil {
		was = pageTime{store: flag.ModTime, sent: t.sent}
	}
	if !was.store.IsZero() && was.ahead(page.Now, answered) > verdict.Margin {
		return errStoodStill
	}
	return nil
}

// stillListed returns errUnlisted if our own flag isn't stored. It looks for the flag itself, because a look can end
// before the page of the flag: when it has found conflicts, or when the lock is shared.
func (l *Locker) stillListed(ctx context.Context, t *attempt) error {
	if t.listed.flag {
		return nil
	}
	own, err := l.find(ctx, t.flag.key)
	if err == nil && (own == nil || own.Size == 0) {
		err = fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
	}
	if err == nil {
		err = l.proveFlag(ctx, t, *own)
	}
	return err
}

// heldError returns the error that names the conflicting locks.
func (l *Locker) heldError(t *attempt, f verdict.Findings) *HeldError {
	in := f.Live
	if len(in) == 0 {
		in = f.Doubtful
	}
	return &HeldError{Mode: t.mode, Holders: l.infos(in, f), More: f.More}
}
