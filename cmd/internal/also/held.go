package also

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// held is a lock of another system that is held and renews itself.
type held struct {
	*other
	handle  locking.Handle
	id      string
	since   time.Duration // when it was acquired, or resumed, on the clock's Elapsed
	observe func(events.Event)

	ctx       context.Context
	cancel    context.CancelCauseFunc
	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the refresher has ended
	deadline  atomic.Int64
	seen      atomic.Pointer[clock.Reading]
	lost      atomic.Pointer[replock.LostError]
	release   func() error // once
}

// hold starts to renew a lock. began is when the request that acquired it was sent.
func (o *other) hold(h locking.Handle, began clock.Reading, observe func(events.Event)) *held {
	l := &held{other: o, handle: h, id: newID(), since: o.clock.Elapsed(), observe: observe, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.seen.Store(&began)
	l.deadline.Store(int64(began.Elapsed + o.schedule.Deadline))
	l.release = sync.OnceValue(l.end)
	l.refresher = refresh.New(refresh.Refresher{
		Schedule: o.schedule, Clock: o.clock, Start: began.Elapsed, Drain: o.schedule.Timeout,
		Attempt: l.renew, Failed: l.failed, Extended: l.extended, Early: func(time.Duration) time.Duration { return 0 },
	})
	running, stop := context.WithCancelCause(context.Background())
	l.stop = stop
	go l.run(running)
	return l
}

// newID returns an id as replock's locks have it: 128 random bits in hex.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // which never fails
	return hex.EncodeToString(id[:])
}

// run renews the lock until it is released or lost.
func (l *held) run(ctx context.Context) {
	defer close(l.done)
	watching, unwatch := context.WithCancel(ctx)
	go l.watch(watching)
	go l.watchEnd(watching)
	expired, err := l.refresher.Run(ctx)
	unwatch()
	if errors.Is(err, replock.ErrReleased) {
		return
	}
	lost := &replock.LostError{Mode: replock.Exclusive, Key: l.at.URL, Reason: "it could not be renewed in time"}
	if expired {
		lost.Err = err
	} else {
		lost.Reason, lost.Definite = plain(err), true
	}
	if l.resumer == nil && !lost.Definite {
		lost.Reason, lost.Definite = lost.Reason+", and a lock of this kind can't be resumed", true
	}
	l.lost.Store(lost)
	l.tell(replock.EventLost, lost)
	l.cancel(lost)
}

// watch renews the lock at once when the machine's clocks part: it stood still, perhaps, and
// the guard lets the command go on only after a look at the lock.
func (l *held) watch(ctx context.Context) {
	for clock.Sleep(ctx, l.clock, clock.Tick) == nil {
		if clock.Read(l.clock).Parted(*l.seen.Load()) {
			_ = l.refresher.Now(ctx, l.done)
		}
	}
}

// watchEnd renews the lock at once when the backend sees its end early.
func (l *held) watchEnd(ctx context.Context) {
	w, ok := l.Backend.(locking.Watcher)
	if !ok {
		return
	}
	select {
	case <-w.Watch(l.handle):
		_ = l.refresher.Now(ctx, l.done)
	case <-ctx.Done():
	}
}

func (l *held) renew(ctx context.Context, _ bool) (refresh.Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, l.schedule.Timeout)
	defer cancel()
	began := clock.Read(l.clock)
	err := l.Backend.Renew(ctx, l.handle)
	if errors.Is(err, locking.ErrLost) {
		return refresh.Renewal{}, refresh.Stop(err)
	}
	if err != nil {
		return refresh.Renewal{}, err
	}
	return refresh.Renewal{Sent: began.Elapsed, Commit: func() { l.seen.Store(&began) }}, nil
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

func (l *held) extended(deadline time.Duration) {
	l.deadline.Store(int64(deadline))
	l.tell(replock.EventRefreshed, nil)
}

func (l *held) tell(kind replock.EventKind, err error) {
	e := l.event(kind)
	e.Err = err
	l.observe(e)
}

func (l *held) event(kind replock.EventKind) events.Event {
	e := l.other.event(kind)
	now := l.clock.Elapsed()
	e.ID, e.Held, e.Left = l.id, min(now, l.Deadline())-l.since, l.Deadline()-now
	return e
}

func (l *held) ID() string               { return l.id }
func (l *held) Key() string              { return l.at.URL }
func (l *held) Mode() replock.Mode       { return replock.Exclusive }
func (l *held) Operation() string        { return l.operation }
func (l *held) Fence() (uint64, bool)    { return 0, false }
func (l *held) Context() context.Context { return l.ctx }
func (l *held) Deadline() time.Duration  { return time.Duration(l.deadline.Load()) }
func (l *held) Seen() clock.Reading      { return *l.seen.Load() }
func (l *held) Lost() *replock.LostError { return l.lost.Load() }

// Check renews the lock: a look costs as much.
func (l *held) Check(ctx context.Context) error { return l.Renew(ctx) }

// Renew renews the lock at once.
func (l *held) Renew(ctx context.Context) error {
	err := l.refresher.Now(ctx, l.done)
	if lost := l.lost.Load(); lost != nil {
		return lost
	}
	return err
}

// connection returns what the lock lasts with, or nil if that is no connection.
func (l *held) connection() syscall.Conn {
	if c, ok := l.Backend.(locking.Connected); ok {
		return c.Connection(l.handle)
	}
	return nil
}

// Finish passes the result of the work on to a lock that stores it.
func (l *held) Finish(success bool) {
	if l.finish != nil {
		l.finish(success)
	}
}

// Release frees the lock. A lock that is lost is freed too, if it is still ours: its deadline
// is before its end.
func (l *held) Release(context.Context) error { return l.release() }

func (l *held) end() error {
	l.stop(replock.ErrReleased)
	<-l.done
	err := l.free(l.handle)
	lost := l.lost.Load()
	if lost == nil && errors.Is(err, locking.ErrLost) { // since the last look
		lost = &replock.LostError{Mode: replock.Exclusive, Key: l.at.URL, Reason: plain(err), Definite: true}
		l.lost.Store(lost)
		l.tell(replock.EventLost, lost)
		l.cancel(lost)
		return lost
	}
	switch {
	case lost == nil && err == nil:
		l.tell(replock.EventReleased, nil)
		l.cancel(replock.ErrReleased)
	case lost == nil:
		l.tell(replock.EventReleaseFailed, err)
		l.cancel(replock.ErrReleased)
	case errors.Is(err, locking.ErrLost):
		err = nil // which is known
	case err != nil:
		l.tell(replock.EventReleaseFailed, err)
	}
	return err
}

// Resume returns the lock if no other holder can have had it.
func (l *held) Resume(ctx context.Context) (session.Lock, error) {
	lost := l.lost.Load()
	if lost == nil {
		return nil, errors.New("the lock isn't lost")
	}
	if l.resumer == nil {
		return nil, lost
	}
	var began clock.Reading
	err := l.try(ctx, func(ctx context.Context) error {
		began = clock.Read(l.clock)
		return l.resumer.Resume(ctx, l.handle)
	})
	if errors.Is(err, locking.ErrLost) {
		lost = &replock.LostError{Mode: replock.Exclusive, Key: l.at.URL, Reason: plain(err), Definite: true}
		l.lost.Store(lost)
		return nil, lost
	}
	if err != nil {
		return nil, err
	}
	again := l.hold(l.handle, began, l.observe)
	again.tell(replock.EventResumed, nil)
	return again, nil
}
