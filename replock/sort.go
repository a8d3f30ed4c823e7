package replock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/store"
)

const (
	// maxReported is how many conflicts are read in order to name their holders.
	maxReported = 16
	// readBatch is how many of the other bodies are read before they are judged. It doubles
	// with each batch, up to maxReadBatch: the more are stale, the more will be.
	readBatch    = 4 * atOnce
	maxReadBatch = 16 * readBatch
	// manyAtOnce is the number of requests that are under way at once if there are more
	// bodies than readBatch.
	manyAtOnce = 4 * atOnce
)

// judgeAll reads and judges the entries of one page, and adds them to f. If a young one is live,
// as most are, it does not read the others.
func (l *Locker) judgeAll(ctx context.Context, t *try, f *findings, others []*entry) error {
	var likely, rest []*entry
	for _, e := range others {
		if len(likely) < maxReported && f.young(e) {
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
				if f.young(e) {
					f.more++
				}
			}
			return nil
		}
	}
	return nil
}

// errVanished: an object was listed, and was missing or empty when its body was read. Most
// likely it was deleted meanwhile, which another look shows.
var errVanished = errors.New("it was listed, and can't be read any more")

// sort judges one entry that was read, and adds it to f.
func (l *Locker) sort(t *try, f *findings, e *entry) error {
	switch {
	case errors.Is(e.err, errVanished):
		e.presumeLive(e.err)
		f.vanished = append(f.vanished, e)
		return nil
	case errors.Is(e.err, errUnread):
		// A store that is unfit, or set up wrongly, would be "held" for ever.
		if !f.young(e) || errors.Is(e.err, store.ErrConfig) {
			e.forget()
			return unsure(fault.While(fmt.Sprintf("reading the lock %q", e.Key), e.err))
		}
		// Too young to be stale, unless its ttl is shorter than the default.
		e.presumeLive(e.err)
		f.live = append(f.live, e)
		return nil
	case t.wrote(e):
		if e.kind == kindExclusive && e.lease.ID == t.id {
			t.claimed(e.ETag) // a put of ours that got no answer was applied
			t.exclusive.listed = true
		} else if e.kind == kindExclusive {
			f.exclusive = e // of an earlier try: to be claimed again
		}
		return nil
	}
	l.judge(e, f.st, f.now)
	f.bodies.add(e)
	if e.kind == kindExclusive {
		t.exclusive.put = false // another client has replaced it
		f.exclusive = e
	}
	if !t.isBefore(e) {
		f.add(e)
	}
	return nil
}

// isBefore reports whether an entry is behind this try in the queue. It holds nothing, and
// looks again before it does.
func (t *try) isBefore(e *entry) bool {
	return e.isTicket() && place(e.Key) > t.place && e.verdict != Stale
}

// forget makes the next look read the entry again.
func (e *entry) forget() { e.read, e.carried = false, false }

// presumeLive takes an entry for live whose body could not be read.
func (e *entry) presumeLive(why error) {
	e.forget()
	e.verdict, e.why = Live, why.Error()
}

// errUnread is the class of a failure to fetch a body, as opposed to one that cannot be understood.
var errUnread = errors.New("a body couldn't be read")

// countUnread returns how many entries were not read yet.
func countUnread(entries []*entry) (n int) {
	for _, e := range entries {
		if !e.read {
			n++
		}
	}
	return n
}

// readAll reads the bodies that were not read yet. A poll reads only those of which nothing is
// known. Once the store fails, the others have failed, too, without a request.
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

// read reads a body. One that can't be fetched is read again by the next look.
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
		e.err = fault.As(errUnread, err)
		e.forget()
	}
}
