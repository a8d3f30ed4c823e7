package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/store"
)

// look is the second half of "flag and look": after our flag was put, it lists the flags, and
// returns those that conflict: see enter. It reads bodies only of conflicts, and stops at the first
// page that has a live one.
func (l *Locker) look(ctx context.Context, t *attempt, s memory) (findings, error) {
	f := findings{st: t.st}
	t.looked, t.listed = true, listed{}
	t.seen = clock.Read(l.opts.Clock)
	last := "" // last key of the previous page
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.all(), cursor)
		if err != nil {
			return f, err
		}
		f.now = sent
		answered := l.opts.Clock.Elapsed()
		t.trips.list.note(answered - sent)
		if err := l.slept(t, page, sent, answered); err != nil {
			return f, err
		}
		t.page = pageTime{page.Now, sent, t.sent, len(page.Objects)}
		t.learn(page, cursor != "", answered)
		s.forget(page, last)
		if n := len(page.Objects); n > 0 {
			last = page.Objects[n-1].Key
		}
		others, complete := l.others(t, s, page)
		adopt(page, others)
		if len(others) > 0 && !t.st.known() {
			if err := l.learnApart(ctx, t); err != nil {
				return f, err
			}
		}
		f.st = t.st
		if err := l.judgeAll(ctx, t, &f, others); err != nil {
			return f, err
		}
		if len(f.live) > 0 {
			f.unlisted = t.listedAsPromised(page) != nil
			return f, nil
		}
		if complete || page.Next == "" {
			return f, t.listedAsPromised(page)
		}
		cursor = page.Next
	}
}

// errUnlisted: a listing that had to show our flag didn't. Either the lock was broken while it was
// being acquired, or the store doesn't keep the one promise that safety rests on.
var errUnlisted = unsure(errors.New("the store didn't list a lock that was just put"))

// listedAsPromised returns errUnlisted if the last page of a look had to show our flag and didn't.
// A shared acquirer's look can end before that page.
func (t *attempt) listedAsPromised(page store.Page) error {
	if _, certain := inPage(page, t.flag.key); !t.flag.put || t.listed.flag || !certain {
		return nil
	}
	return fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
}

// learn takes the store's time from a page. The best source is the mod time of our own flag, which the
// store stamped before it answered our put. The next one is the page's own time. If a ticket is on a
// later page, it can be listed for the first time long after its put. Then the page's time is the
// better bound, and a poll, which decides nothing, needs no better one.
func (t *attempt) learn(page store.Page, later bool, answered time.Duration) {
	for _, o := range page.Objects {
		if o.Key == t.pointer.key {
			t.listed.pointer, t.listed.another = t.owns(o), !t.owns(o)
		}
		if o.Key != t.flag.key {
			continue
		}
		t.listed.flag = o.Size > 0
		if o.ModTime.IsZero() || t.polls && later && t.st.known() {
			break
		}
		t.stamped(o.ModTime, answered)
		return
	}
	if !page.Now.IsZero() {
		t.st = storeTime{page.Now, answered}
	}
}

// learnApart takes the store's time from our own flag, if the flag isn't on the pages so far and
// these have no time.
func (l *Locker) learnApart(ctx context.Context, t *attempt) error {
	own, err := l.find(ctx, t.flag.key)
	if err == nil && own != nil {
		t.st = storeTime{own.ModTime, l.opts.Clock.Elapsed()}
	}
	return err
}

// others returns the objects of a page that can conflict. complete is true if no later page has one.
func (l *Locker) others(t *attempt, s memory, page store.Page) (others []*entry, complete bool) {
	answered := l.opts.Clock.Elapsed()
	for _, o := range page.Objects {
		k := l.keys.kind(o.Key)
		if t.mode == Shared && k == kindShared {
			return others, true
		}
		if k == kindUnknown || t.owns(o) {
			continue
		}
		others = append(others, s.see(o, k, answered))
	}
	return others, false
}

// findings are the locks of others that a look has found.
type findings struct {
	live     []*entry // conflicts, also unreadable ones
	doubtful []*entry // conflicts until they have been watched
	stale    []*entry // to be reaped before the lock is acquired
	vanished []*entry // listed, and missing when their bodies were read
	released []*entry // empty flags
	more     int      // the number of further likely conflicts, whose bodies weren't read
	bodies   bodies   // the size of the bodies above, in bytes
	reading  *progress
	unlisted bool   // our flag was missing in the listing
	ours     *entry // our pointer, if the answer to its put was lost
	// pointer is another client's lock.exclusive, or nil. If nothing conflicts, it is stale or
	// released.
	pointer *entry
	st      storeTime
	now     time.Duration
}

// add adds an entry that was judged.
func (f *findings) add(e *entry) {
	switch e.verdict {
	case Live, Unreadable:
		f.live = append(f.live, e)
	case Doubtful:
		f.doubtful = append(f.doubtful, e)
	case Stale:
		f.stale = append(f.stale, e)
	case Released:
		if e.kind != kindExclusive && !e.unfinished(f.st, f.now) {
			f.released = append(f.released, e)
		}
	}
}

// maxBodies is the number of bytes of bodies that a survey or a look keeps. The parsed fields are
// always kept.
const maxBodies = 4 << 20

// bodies counts the bytes of bodies.
type bodies int

// add drops the body of an entry if all bodies so far exceed maxBodies.
func (b *bodies) add(e *entry) {
	if *b += bodies(len(e.raw)); *b > maxBodies {
		e.raw = nil
	}
}

// young reports whether an entry's age is unknown or under the default ttl. Such an entry is a
// conflict, unless its body has a shorter ttl.
func (f *findings) young(e *entry) bool {
	age, known := e.age(f.st, f.now)
	return !known || age < DefaultTTL
}

// conflicts returns the live and doubtful locks by key.
func (f findings) conflicts() map[string]*entry {
	m := map[string]*entry{}
	for _, e := range slices.Concat(f.live, f.doubtful) {
		m[e.Key] = e
	}
	return m
}

const (
	// maxReported is the number of conflicts that are read first. The error names their holders.
	maxReported = 16
	// readBatch is the number of other bodies that are read before they are judged. It doubles with
	// each batch, up to maxReadBatch, because after many stale locks more are likely.
	readBatch    = 4 * atOnce
	maxReadBatch = 16 * readBatch
	// manyAtOnce is the number of parallel requests if more than readBatch bodies are to be read.
	manyAtOnce = 4 * atOnce
)

// judgeAll reads and judges the entries of one page, and adds them to f. It reads the likely conflicts
// first: the young entries, or in a poll the entries that aren't behind the waiter in the queue. If
// one of them is live, as usual, it doesn't read the others.
func (l *Locker) judgeAll(ctx context.Context, t *attempt, f *findings, others []*entry) error {
	var likely, rest []*entry
	for _, e := range others {
		if t.polls && place(e.Key) <= t.place || !t.polls && len(likely) < maxReported && f.young(e) {
			likely = append(likely, e)
		} else {
			rest = append(rest, e)
		}
	}
	if f.reading == nil && !t.polls {
		f.reading = l.progress(t, EventReading, countUnread(rest))
	}
	for size := readBatch; len(likely) > 0 || len(rest) > 0; {
		batch := likely
		if likely = nil; len(batch) == 0 {
			n := min(size, len(rest))
			batch, rest = rest[:n], rest[n:]
			size = min(2*size, maxReadBatch)
		}
		l.readAll(ctx, batch, t.polls, f.reading)
		for _, e := range batch {
			if err := l.sort(t, f, e); err != nil {
				return err
			}
		}
		if len(f.live) > 0 {
			for _, e := range rest {
				if !t.polls && f.young(e) {
					f.more++
				}
			}
			return nil
		}
	}
	return nil
}

// errVanished is the error of an entry that was listed, and was missing or empty when its body was
// read. It was probably deleted meanwhile, and another look shows that.
var errVanished = errors.New("it is listed, and a read doesn't find it")

// sort judges one entry that was read, and adds it to f.
func (l *Locker) sort(t *attempt, f *findings, e *entry) error {
	switch {
	case errors.Is(e.err, errVanished):
		e.presumeLive(e.err)
		f.vanished = append(f.vanished, e)
		return nil
	case errors.Is(e.err, errUnread):
		// Presuming an old lock live, or any lock if the configuration is wrong, would make it look
		// held for ever.
		if !f.young(e) || errors.Is(e.err, store.ErrConfig) {
			e.forget()
			return unsure(fault.While(fmt.Sprintf("reading the lock %q", e.Key), e.err))
		}
		// It is too young to be stale, unless its ttl is shorter than the default.
		e.presumeLive(e.err)
		f.live = append(f.live, e)
		return nil
	case t.wrote(e):
		if e.kind == kindExclusive && e.lease.ID == t.id {
			f.ours, t.listed.pointer, t.listed.another = e, true, false
		} else if e.kind == kindExclusive {
			f.pointer = e // written by an earlier attempt: it must be claimed again
		}
		return nil
	}
	l.judge(e, f.st, f.now)
	f.bodies.add(e)
	if e.kind == kindExclusive {
		f.pointer = e
	}
	if !t.isBefore(e) {
		f.add(e)
	}
	return nil
}

// isBefore reports whether this attempt comes before an entry: the entry is the ticket of a waiter
// that is behind us in the queue. A ticket grants nothing: its owner looks again before it holds a
// lock.
func (t *attempt) isBefore(e *entry) bool {
	return e.isTicket() && place(e.Key) > t.place && e.verdict != Stale
}

// forget makes the next look read the body again.
func (e *entry) forget() { e.read, e.carried = false, false }

// presumeLive makes an entry live because its body couldn't be read.
func (e *entry) presumeLive(why error) {
	e.forget()
	e.verdict, e.why = Live, why.Error()
}

// errUnread is the class of errors of a body that couldn't be fetched. A body that was fetched and
// can't be parsed has another error.
var errUnread = errors.New("the body couldn't be read")

// countUnread returns the number of entries that were not read yet.
func countUnread(entries []*entry) (n int) {
	for _, e := range entries {
		if !e.read {
			n++
		}
	}
	return n
}

// adopt moves the bodies that a page has into the entries.
func adopt(page store.Page, entries []*entry) {
	for _, e := range entries {
		if body := page.Bodies[e.Key]; !e.read && len(body) > 0 && len(body) <= maxBody {
			e.decode(body)
		}
		delete(page.Bodies, e.Key)
	}
}

// readAll reads the bodies that were not read yet. A poll skips an entry if an earlier version of its
// body is known. Once the store has failed, the remaining entries get the same error without a
// request.
func (l *Locker) readAll(ctx context.Context, entries []*entry, polls bool, p *progress) {
	var unread []*entry
	for _, e := range entries {
		if !e.read && !(polls && e.carried) {
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
			e.err = *failed
			return
		}
		l.read(ctx, e)
		if failed := e.err; errors.Is(failed, errUnread) && !store.Permanent(failed) {
			down.Store(&failed)
		}
		p.add(1)
	})
}

// read reads a body. If the body can't be fetched, the next look reads it again.
func (l *Locker) read(ctx context.Context, e *entry) {
	e.read = true
	c, err := l.get(ctx, e.Key)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && len(c.raw) == 0:
		e.err = errVanished
	case err == nil:
		e.decode(c.raw)
	case errors.Is(err, store.ErrTooLarge):
		e.err = errLarge
	case errors.Is(err, store.ErrInvalidKey), errors.Is(err, store.ErrIrregular):
		e.err = err
		if failed, ok := errors.AsType[*store.Error](err); ok { // its key is the entry's
			e.err = failed.Err
		}
	default:
		e.err = fault.As(errUnread, err)
		e.forget()
	}
}

// decode fills an entry from its body.
func (e *entry) decode(raw []byte) {
	e.read, e.raw = true, raw
	e.lease, e.err = decode(raw)
}
