package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// found is what a look found of others.
type found struct {
	live     []*entry // conflicts, unreadable ones among them
	doubtful []*entry // conflicts until they were watched
	stale    []*entry // to be reaped before one passes
	vanished []*entry // listed, and then not there to be read
	released []*entry // flags that are empty, and that nobody waits for
	more     int      // likely conflicts that weren't looked at
	bodies   int      // how many bytes of them were read
	// exclusive is lock.exclusive as it stands, if it isn't ours: stale or
	// released where there is no conflict.
	exclusive *entry
	st        storeTime
	now       time.Duration
}

// look is the second half of "flag and look": it lists the flags after our own
// was put, and says who is in our way. It reads a body only where there is a
// conflict, and no further than the first page that has a live one.
//
// A listing that starts after our flag's put was answered shows every flag whose
// put was answered before; and whoever puts one later, looks later, and sees
// ours. So of two that conflict at least one sees the other.
func (l *Locker) look(ctx context.Context, t *try, s sight) (found, error) {
	f := found{st: t.st}
	t.looked, t.flag.listed, t.exclusive.listed = true, false, false
	t.seen = clock.Read(l.opts.Clock)
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
		t.page = told{page.Now, sent, t.sent, len(page.Objects)}
		t.learn(page, cursor != "", answered)
		others, told := l.others(t, s, page)
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
			// They are in the way, with or without a ticket; if that is gone it is to be put
			// again before they are.
			if t.polls && t.listedAsPromised(page) != nil {
				t.flag.put = false
			}
			return f, nil
		}
		if told || page.Next == "" {
			return f, t.listedAsPromised(page)
		}
		cursor = page.Next
	}
}

// errUnlisted: our own flag is not in a listing that had to show it. Either
// somebody broke the lock while it was being taken, or the store doesn't keep
// the one promise that safety rests on.
var errUnlisted error = unsure{errors.New("the store didn't list a lock that it had just been given")}

// listedAsPromised returns errUnlisted if the last page of a look had to show our
// flag and didn't. A shared acquirer needn't read as far as that.
func (t *try) listedAsPromised(page store.Page) error {
	n := len(page.Objects)
	if !t.flag.put || t.flag.listed || page.Next != "" && t.flag.key > page.Objects[n-1].Key {
		return nil
	}
	return fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
}

// learn takes the store's clock from a page: from the mod time of our own flag,
// which the store stamped before it answered our put; or else from the page.
//
// A poll's flag, which is a ticket, may be old, and on a later page may be seen for the first
// time long after it was put. What the pages say is nearer, and enough: a poll decides nothing.
func (t *try) learn(page store.Page, later bool, answered time.Duration) {
	for _, o := range page.Objects {
		if o.Key != t.flag.key {
			continue
		}
		t.flag.listed = o.Size > 0
		if o.ModTime.IsZero() || t.polls && later && t.st.known() {
			break
		}
		if !o.ModTime.Equal(t.dated.at) {
			// Not the put that was answered, perhaps, but an earlier one that
			// was applied late: all that is known is that it was before now.
			t.dated = storeTime{o.ModTime, answered}
		}
		t.st = t.dated
		return
	}
	if !page.Now.IsZero() {
		t.st = storeTime{page.Now, answered}
	}
}

// learnApart takes the store's clock from our own flag where it is on a later page
// than those that are to be judged, and the store tells no time otherwise.
func (l *Locker) learnApart(ctx context.Context, t *try) error {
	own, err := l.find(ctx, t.flag.key)
	if err == nil && own != nil {
		t.st = storeTime{own.ModTime, l.opts.Clock.Elapsed()}
	}
	return err
}

// others picks from a page the objects that may be in our way. told says that
// later pages can hold no more of them.
func (l *Locker) others(t *try, s sight, page store.Page) (others []*entry, told bool) {
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

// maxReported is how many conflicts are read in order to name their holders.
const maxReported = 16

// judgeAll reads and judges the entries of one page, and sorts them into f. If
// one of the young ones is live, which is what they mostly are, the others
// aren't read.
func (l *Locker) judgeAll(ctx context.Context, t *try, f *found, others []*entry) error {
	var likely, rest []*entry
	for _, e := range others {
		age, ok := e.age(f.st, f.now)
		if len(likely) < maxReported && (!ok || age < young) {
			likely = append(likely, e)
		} else {
			rest = append(rest, e)
		}
	}
	for len(likely) > 0 || len(rest) > 0 {
		batch := likely
		if likely = nil; len(batch) == 0 {
			n := min(4*parallel, len(rest))
			batch, rest = rest[:n], rest[n:]
		}
		l.readAll(ctx, batch, t.polls)
		for _, e := range batch {
			if err := l.sort(t, f, e); err != nil {
				return err
			}
		}
		if len(f.live) > 0 {
			for _, e := range rest {
				if age, ok := e.age(f.st, f.now); !ok || age < young {
					f.more++
				}
			}
			return nil
		}
	}
	return nil
}

// errVanished: an object was listed, and wasn't there, or was empty, when its body
// was read. Most likely it was deleted meanwhile; another look tells.
var errVanished = errors.New("it was listed, and can't be read any more")

// sort judges one entry that was read.
func (l *Locker) sort(t *try, f *found, e *entry) error {
	if errors.Is(e.err, errVanished) {
		e.read, e.carried = false, false
		e.verdict, e.why = Live, e.err.Error()
		f.vanished = append(f.vanished, e)
		return nil
	}
	var failed readError
	if errors.As(e.err, &failed) {
		e.read, e.carried = false, false // the next look tries again
		// A store that is unfit, or set up wrongly, would be "held" for ever.
		if age, ok := e.age(f.st, f.now); ok && age >= young || errors.Is(failed.err, store.ErrConfig) {
			return unsure{fmt.Errorf("reading the lock %q: %w", e.Key, failed.err)}
		}
		// Too young to be stale, unless its ttl is shorter than the default.
		e.verdict, e.why = Live, failed.err.Error()
		f.live = append(f.live, e)
		return nil
	}
	if e.err == nil && t.ids[e.lease.ID] {
		if e.kind == kindExclusive && e.lease.ID == t.id {
			t.adopt(e)
		} else if e.kind == kindExclusive {
			f.exclusive = e // of an earlier try: to be claimed again
		}
		return nil
	}
	l.judge(e, f.st, f.now)
	if f.bodies += len(e.raw); f.bodies > maxBodies {
		e.raw = nil
	}
	if e.kind == kindExclusive {
		t.exclusive.put = false // undone by somebody
		f.exclusive = e
	}
	if e.kind == kindIntent && e.lease.State == stateWaiting && e.Key > t.place && e.verdict != Stale {
		return nil // behind us in the queue: it holds nothing, and looks again before it does
	}
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
	return nil
}

// readError is a body that couldn't be fetched, as opposed to one that was and
// can't be understood.
type readError struct{ err error }

func (e readError) Error() string { return e.err.Error() }

// readAll reads the bodies of those entries that weren't read before: for a poll,
// those of which nothing is known.
func (l *Locker) readAll(ctx context.Context, entries []*entry, polls bool) {
	var unread []*entry
	for _, e := range entries {
		if !e.read && !(polls && e.carried) {
			unread = append(unread, e)
		}
	}
	each(unread, func(_ int, e *entry) { l.read(ctx, e) })
}

func (l *Locker) read(ctx context.Context, e *entry) {
	e.read = true
	c, err := l.get(ctx, e.Key)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && len(c.raw) == 0:
		e.err = errVanished
	case err == nil:
		e.raw = c.raw
		e.lease, e.err = decode(c.raw)
	case errors.Is(err, store.ErrTooLarge):
		e.err = fmt.Errorf("body is larger than %d bytes", maxBody)
	case errors.Is(err, store.ErrInvalidKey), errors.Is(err, store.ErrIrregular):
		e.err = err
	default:
		e.err = readError{err}
	}
}
