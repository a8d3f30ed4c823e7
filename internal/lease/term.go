// Package lease is a lock that is held. It renews the lock in time, knows until when the lock is held, and ends
// the context of the work when the lock is lost. It knows no system that keeps locks: the owner of a lease
// knows one.
package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/refresh"
)

// Terms are the times of a lease, and what its owner does for it. A nil function, but for Attempt and
// Renewal, does nothing.
type Terms struct {
	refresh.Schedule
	Clock clock.Clock
	// Sent is when the request was sent that begins the lease, on the clock's Elapsed. Seen is what the
	// clocks showed before the last look at the lock.
	Sent time.Duration
	Seen clock.Reading
	// Parent is the parent of the lease's context. The renewals don't end with it.
	Parent context.Context
	// Early and Drain are the refresher's.
	Early func(most time.Duration) time.Duration
	Drain time.Duration
	// Attempt is the refresher's. Renewal is called if it is nil: a request that renews all of the lock,
	// and that Timeout bounds. Its error is a fault.HandleLost if the lock is certainly lost.
	Attempt func(ctx context.Context, anew bool) (refresh.Renewal, error)
	Renewal func(context.Context) error
	// Gone is closed when the lock's system notices the loss. Then the lock is renewed at once.
	Gone <-chan struct{}
	// Watch runs beside the renewals, until its context ends.
	Watch func(context.Context)
	// Failed is the refresher's. Extended is called with each new deadline.
	Failed   func(n int, gaveUp bool, err error)
	Extended func()
	// Loss words the loss: err is why the renewals have ended, or, if the lease has expired, the last
	// failure, or nil.
	Loss func(expired bool, err error) Loss
	// Lost is called with the loss before the context ends.
	Lost func(error)
}

// Loss is why a lease has ended before its release.
type Loss struct {
	Err error
	// Definite means that the lock can't be resumed.
	Definite bool
}

// Term is the time from an acquire, or a resume, to the loss or the release of a lock. It has one context.
// What was lost stays lost.
type Term struct {
	Terms
	lease *Lease        // nil: none, as of Guard
	since time.Duration // when it began, on the clock's Elapsed

	ctx       context.Context
	cancel    context.CancelCauseFunc
	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the renewals have ended
	deadline  atomic.Int64
	seen      atomic.Pointer[clock.Reading]
	lost      atomic.Pointer[Loss]
	ended     atomic.Int64 // when it was lost, on the clock's Elapsed
	releasing atomic.Bool
}

// errStopped ends the renewals of a lock that isn't lost.
var errStopped = errors.New("the renewals have ended")

// termKey is the key of a Term in its context.
type termKey struct{}

// New returns a Term whose renewals begin with Begin, so that its owner can have it before.
func New(terms Terms) *Term {
	t := &Term{Terms: terms, since: terms.Clock.Elapsed(), done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(context.WithValue(terms.Parent, termKey{}, t))
	t.seen.Store(&terms.Seen)
	t.deadline.Store(int64(terms.Sent + terms.Deadline))
	return t
}

// Begin begins the renewals, which go on until the lease is released or lost.
func (t *Term) Begin() {
	attempt, early, failed := t.Attempt, t.Early, t.Failed
	if attempt == nil {
		attempt = t.renew
	}
	if early == nil {
		early = func(time.Duration) time.Duration { return 0 }
	}
	if failed == nil {
		failed = func(int, bool, error) {}
	}
	t.refresher = refresh.New(refresh.Refresher{
		Schedule: t.Schedule, Clock: t.Clock, Start: t.Sent, Drain: t.Drain,
		Attempt: attempt, Early: early, Failed: failed, Extended: t.extended,
	})
	running, stop := context.WithCancelCause(context.WithoutCancel(t.Parent))
	t.stop = stop
	go t.run(running)
}

// run renews until the lease ends, and ends its context in time.
func (t *Term) run(ctx context.Context) {
	defer close(t.done)
	watching, unwatch := context.WithCancel(ctx)
	if t.Gone != nil {
		go t.renewIfGone(watching)
	}
	if t.Watch != nil {
		go t.Watch(watching)
	}
	expired, err := t.refresher.Run(ctx)
	unwatch()
	if err == errStopped {
		return
	}
	loss := t.Loss(expired, err)
	t.Lose(loss)
	if t.Terms.Lost != nil {
		t.Terms.Lost(loss.Err)
	}
	t.cancel(loss.Err)
}

func (t *Term) renewIfGone(ctx context.Context) {
	select {
	case <-t.Gone:
		_ = t.Renew(ctx)
	case <-ctx.Done():
	}
}

// renew is one attempt to renew the lock by one request. The lease counts from when it was sent.
func (t *Term) renew(ctx context.Context, _ bool) (refresh.Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	began := clock.Read(t.Clock)
	err := t.Renewal(ctx)
	if errors.Is(err, fault.HandleLost) {
		return refresh.Renewal{}, refresh.Stop(err)
	}
	if err != nil {
		return refresh.Renewal{}, err
	}
	return refresh.Renewal{Sent: began.Elapsed, Commit: func() { t.Saw(began) }}, nil
}

func (t *Term) extended(deadline time.Duration) {
	t.deadline.Store(int64(deadline))
	if t.Extended != nil {
		t.Extended()
	}
}

// Lose notes a loss that Release or Resume has found, or another loss in place of the one before.
func (t *Term) Lose(loss Loss) {
	t.ended.CompareAndSwap(0, int64(min(t.Clock.Elapsed(), t.Deadline())))
	t.lost.Store(&loss)
}

// Fail ends the renewals of a lock that was found lost, and returns when its context has ended.
func (t *Term) Fail(err error) {
	t.stop(err)
	<-t.done
}

// Release ends the context, and the renewals. It returns when no renewal is under way any more that could undo the
// release of the lock.
func (t *Term) Release() {
	t.release()
	<-t.done
}

func (t *Term) release() {
	t.releasing.Store(true)
	t.cancel(fault.Released)
	t.stop(errStopped)
}

// Renew renews the lock at once. It returns the loss of a lease that is lost, and fault.Released if it is released.
func (t *Term) Renew(ctx context.Context) error {
	return t.State(t.refresher.Now(ctx, t.done))
}

// State returns why the lock isn't held any more, or else err.
func (t *Term) State(err error) error {
	if lost := t.lost.Load(); lost != nil {
		return lost.Err
	}
	if t.releasing.Load() {
		return fault.Released
	}
	return err
}

// Context ends with the lease: with its loss, or fault.Released, as the cause. It also ends with Parent.
func (t *Term) Context() context.Context { return t.ctx }

// Deadline is when the lease is lost unless it is renewed before, on the clock's Elapsed.
func (t *Term) Deadline() time.Duration { return time.Duration(t.deadline.Load()) }

// Seen returns what the clocks showed before the last look at the lock.
func (t *Term) Seen() clock.Reading { return *t.seen.Load() }

// Saw notes a look at the lock.
func (t *Term) Saw(r clock.Reading) { t.seen.Store(&r) }

// Lost returns the loss, or nil.
func (t *Term) Lost() *Loss { return t.lost.Load() }

// Releasing reports whether the release has begun: no further renewal must be sent.
func (t *Term) Releasing() bool { return t.releasing.Load() }

// Done is closed when the renewals have ended.
func (t *Term) Done() <-chan struct{} { return t.done }

// Left returns how long the lease lasts without another renewal, or 0.
func (t *Term) Left() time.Duration {
	if t.lost.Load() != nil || t.releasing.Load() {
		return 0
	}
	return max(t.Deadline()-t.Clock.Elapsed(), 0)
}

// Times returns for how long the lease has been held, and how long it still lasts: less than nothing after the
// deadline.
func (t *Term) Times() (held, left time.Duration) {
	now, until := t.Clock.Elapsed(), t.Deadline()
	left = until - now
	if t.lost.Load() != nil {
		until = time.Duration(t.ended.Load())
	}
	return min(now, until) - t.since, left
}
