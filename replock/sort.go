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
	// maxReported is the number of conflicts that are read first. The error names their holders.
	maxReported = 16
	// readBatch is the number of other bodies that are read before they are judged. It doubles with
	// each batch, up to maxReadBatch, because after many stale locks more are likely.
	readBatch    = 4 * atOnce
	maxReadBatch = 16 * readBatch
	// manyAtOnce is the number of parallel requests if more than readBatch bodies are to be read.
	manyAtOnce = 4 * atOnce
)

// judgeAll reads and judges the entries of one page, and adds them to f. It reads the young ones
// first. If one of them is live, as usual, it doesn't read the others.
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

// errVanished is the error of an entry that was listed, and was missing or empty when its body was
// read. It was probably deleted meanwhile, and another look shows that.
var errVanished = errors.New("it is listed, and a read doesn't find it")

// sort judges one entry that was read, and adds it to f.
func (l *Locker) sort(t *try, f *findings, e *entry) error {
	switch {
	case errors.Is(e.err, errVanished):
		e.presumeLive(e.err)
		f.vanished = append(f.vanished, e)
		return nil
	case errors.Is(e.err, errUnread):
		// If the store or its configuration is unfit, the lock would look held for ever.
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
			t.claimed(e.ETag) // a put of ours whose answer was lost
			t.exclusive.listed = true
		} else if e.kind == kindExclusive {
			f.exclusive = e // written by an earlier try: it must be claimed again
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

// isBefore reports whether an entry is the ticket of a waiter behind this try, which so comes
// before it. A ticket grants nothing: its owner looks again before it holds a lock.
func (t *try) isBefore(e *entry) bool {
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

// readAll reads the bodies that were not read yet. A poll skips those of which an earlier version
// is known. Once the store has failed, the remaining bodies get the same error without a request.
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
