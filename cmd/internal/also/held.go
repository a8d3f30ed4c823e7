package also

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"syscall"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// held is a lock of another system that is held and renews itself.
type held struct {
	*other
	*lease.Term
	handle  locking.Handle
	id      string
	observe func(events.Event)
}

// hold starts to renew a lock. began is when the request that acquired it was sent.
func (o *other) hold(h locking.Handle, began clock.Reading, observe func(events.Event)) *held {
	l := &held{other: o, handle: h, id: newID(), observe: observe}
	terms := lease.Terms{
		Schedule: o.schedule, Clock: o.clock, Sent: began.Elapsed, Seen: began, Parent: context.Background(), Drain: o.schedule.Timeout,
		Renewal: func(ctx context.Context) error { return o.Backend.Renew(ctx, h) },
		Watch:   l.watch, Failed: l.failed, Extended: func() { l.tell(replock.EventRefreshed, nil) },
		Loss: l.loss, Lost: func(err error) { l.tell(replock.EventLost, err) },
	}
	if w, ok := o.Backend.(locking.Watcher); ok {
		terms.Gone = w.Watch(h)
	}
	l.Term = lease.New(terms)
	l.Begin()
	return l
}

// newID returns an id as replock's locks have it: 128 random bits in hex.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // which never fails
	return hex.EncodeToString(id[:])
}

// loss words why the renewals have ended.
func (l *held) loss(expired bool, err error) lease.Loss {
	if !expired {
		return l.broken(err)
	}
	lost := &replock.LostError{Mode: replock.Exclusive, Key: l.at.URL, Reason: "it could not be renewed in time", Err: err}
	if l.resumer == nil {
		lost.Reason, lost.Definite = lost.Reason+", and a lock of this kind can't be resumed", true
	}
	return lease.Loss{Err: lost, Definite: lost.Definite}
}

// broken words a loss that the backend has reported.
func (l *held) broken(err error) lease.Loss {
	return lease.Loss{Err: &replock.LostError{Mode: replock.Exclusive, Key: l.at.URL, Reason: plain(err), Definite: true}, Definite: true}
}

// watch renews the lock at once when the machine's clocks part: it stood still, perhaps, and
// the guard lets the command go on only after a look at the lock.
func (l *held) watch(ctx context.Context) {
	for clock.Sleep(ctx, l.clock, clock.Tick) == nil {
		if clock.Read(l.clock).Parted(l.Seen()) {
			_ = l.Renew(ctx)
		}
	}
}

func (l *held) failed(n int, gaveUp bool, err error) {
	e := l.event(replock.EventRefreshFailed)
	e.Failures, e.Err = n, err
	l.observe(e)
	if gaveUp {
		e.Kind = replock.EventGaveUp
		l.observe(e)
	}
}

func (l *held) tell(kind replock.EventKind, err error) {
	e := l.event(kind)
	e.Err = err
	l.observe(e)
}

func (l *held) event(kind replock.EventKind) events.Event {
	e := l.other.event(kind)
	e.ID = l.id
	e.Held, e.Left = l.Times()
	return e
}

// About implements lease.Owner.
func (l *held) About() lease.About {
	return lease.About{
		ID: l.id, Key: l.at.URL, Operation: l.operation, Exclusive: true, Finish: l.finish, Connection: l.connection,
	}
}

// Check renews the lock: a look costs as much.
func (l *held) Check(ctx context.Context) error { return l.Renew(ctx) }

// connection returns the connection that the lock dies with, or nil.
func (l *held) connection() syscall.Conn {
	if c, ok := l.Backend.(locking.Connected); ok {
		return c.Connection(l.handle)
	}
	return nil
}

// Free frees the lock. A lock that is lost is freed too, if it is still ours: its deadline is before its end.
func (l *held) Free(context.Context) error {
	err := l.free(l.handle)
	switch lost := l.Lost(); {
	case lost != nil && errors.Is(err, locking.ErrLost):
		return nil // which is known
	case lost == nil && errors.Is(err, locking.ErrLost): // since the last look
		loss := l.broken(err)
		l.Lose(loss)
		l.tell(replock.EventLost, loss.Err)
		return loss.Err
	case err != nil:
		l.tell(replock.EventReleaseFailed, err)
	case lost == nil:
		l.tell(replock.EventReleased, nil)
	}
	return err
}

// Again acquires the lock again if no other holder can have had it.
func (l *held) Again(ctx context.Context) (lease.Owner, error) {
	var began clock.Reading
	err := l.try(ctx, func(ctx context.Context) error {
		began = clock.Read(l.clock)
		return l.resumer.Resume(ctx, l.handle)
	})
	if errors.Is(err, locking.ErrLost) {
		loss := l.broken(err)
		l.Lose(loss)
		return nil, loss.Err
	}
	if err != nil {
		return nil, err
	}
	return l.hold(l.handle, began, l.observe), nil
}

// Resumed tells of it.
func (l *held) Resumed() { l.tell(replock.EventResumed, nil) }
