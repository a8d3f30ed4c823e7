// Package lease holds a lock that was acquired: it renews the lock in time, keeps its deadline, and ends the
// context of the work when the lock is lost. Only the owner of a lease knows the system that keeps the lock.
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

// Terms are the times of a lease, and its owner's functions. All functions but Loss can be nil; either Attempt
// or Renewal is set.
type Terms struct {
	refresh.Schedule
	Clock clock.Clock
	// Sent is when the request that acquired the lock was sent, on the clock's Elapsed. Seen is a reading of
	// the clocks from before the last look at the lock.
	Sent time.Duration
	Seen clock.Reading
	// Parent is the parent of the lease's context. The renewals go on when it ends.
	Parent context.Context
	// Early, Drain, Attempt and Failed are fields of refresh.Refresher.
	Early   func(most time.Duration) time.Duration
	Drain   time.Duration
	Attempt func(ctx context.Context, anew bool) (refresh.Renewal, error)
	Failed  func(n int, gaveUp bool, err error)
	// Renewal replaces Attempt for a lock that one request renews. Timeout bounds the request. It returns a
	// fault.HandleLost if the lock is certainly lost.
	Renewal func(context.Context) error
	// Gone is closed when the lock's system reports a loss. The lease then renews the lock at once.
	Gone <-chan struct{}
	// Watch runs beside the renewals, until its context ends. If it is nil, the lease renews the lock at once when
	// the machine's clocks part, because the machine might have stood still.
	Watch func(context.Context)
	// Extended is called after each renewal.
	Extended func()
	// Loss returns the loss that ended the renewals. err is its cause; if the lease has expired, err is the last
	// failure, or nil.
	Loss func(expired bool, err error) Loss
	// Lost is called with the loss before the context ends.
	Lost func(error)
}

// Loss is the end of a lease before its release.
type Loss struct {
	Err      error
	Definite bool // the lock can't be resumed
}

// Term is the time from an acquire, or a resume, to the loss or the release of a lock. It has one context. A
// resume begins another Term.
type Term struct {
	Terms
	lease atomic.Pointer[Lease] // nil for a locking.Guard
	since time.Duration         // its beginning, on the clock's Elapsed

	ctx       context.Context
	cancel    context.CancelCauseFunc
	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the renewals have ended
	deadline  atomic.Int64
	seen      atomic.Pointer[clock.Reading]
	lost      atomic.Pointer[Loss]
	ended     atomic.Int64 // the time of the loss, on the clock's Elapsed
	releasing atomic.Bool
	reported  atomic.Bool // ReportEnd was called
}

// errStopped ends the renewals of a lock that isn't lost.
var errStopped = errors.New("the renewals have ended")

// termKey is the key of the context's value that holds the Term.
type termKey struct{}

// New returns a Term. Its owner stores it before Begin starts the renewals.
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

// run renews the lock until the lease ends, and then ends the context.
func (t *Term) run(ctx context.Context) {
	defer close(t.done)
	watching, unwatch := context.WithCancel(ctx)
	if t.Gone != nil {
		go t.renewIfGone(watching)
	}
	if t.Watch == nil {
		t.Watch = t.renewIfParted
	}
	go t.Watch(watching)
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

func (t *Term) renewIfParted(ctx context.Context) {
	w := clock.NewWatch(t.Clock)
	defer w.Stop()
	for pause := t.Interval; w.Sleep(ctx, pause) == nil; {
		pause = t.Interval
		if clock.Read(t.Clock).Parted(t.Seen()) {
			_ = t.Renew(ctx)
			pause = clock.Tick // look again soon, because the renewal might have failed
		}
	}
}

// renew is an Attempt that calls Renewal. The lease counts from the time at which the request was sent.
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
	t.changed()
	if t.Extended != nil {
		t.Extended()
	}
}

// Lose notes a loss, or replaces the loss by one that Release or Resume has found.
func (t *Term) Lose(loss Loss) {
	t.ended.CompareAndSwap(0, int64(min(t.Clock.Elapsed(), t.Deadline())))
	t.lost.Store(&loss)
}

// Fail ends the renewals because of a loss, and returns when the context has ended.
func (t *Term) Fail(err error) {
	t.stop(err)
	<-t.done
}

// Release ends the context and the renewals. It returns when no renewal is under way that could undo the release.
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

// State returns the loss, or fault.Released, or else err.
func (t *Term) State(err error) error {
	if lost := t.lost.Load(); lost != nil {
		return lost.Err
	}
	if t.releasing.Load() {
		return fault.Released
	}
	return err
}

// Context ends with the lease, and its cause is the loss or fault.Released. It also ends with Parent.
func (t *Term) Context() context.Context { return t.ctx }

// Deadline is the end of the lease without another renewal, on the clock's Elapsed.
func (t *Term) Deadline() time.Duration { return time.Duration(t.deadline.Load()) }

// Seen returns a reading of the clocks from before the last look at the lock.
func (t *Term) Seen() clock.Reading { return *t.seen.Load() }

// Saw notes a look at the lock.
func (t *Term) Saw(r clock.Reading) {
	t.seen.Store(&r)
	t.changed()
}

// changed notifies the receiver of Set.Notify.
func (t *Term) changed() {
	l := t.lease.Load()
	if l == nil {
		return
	}
	if c := l.notify.Load(); c != nil {
		select {
		case *c <- struct{}{}:
		default:
		}
	}
}

// Lost returns the loss, or nil.
func (t *Term) Lost() *Loss { return t.lost.Load() }

// ReportEnd returns true at its first call, so that of all events of a Term's end only one counts as its end.
func (t *Term) ReportEnd() (first bool) { return !t.reported.Swap(true) }

// Releasing reports whether the release has begun. From then on no renewal must be sent.
func (t *Term) Releasing() bool { return t.releasing.Load() }

// Done is closed when the renewals have ended.
func (t *Term) Done() <-chan struct{} { return t.done }

// Left returns how long the lease lasts without another renewal, or 0 if it is lost or released.
func (t *Term) Left() time.Duration {
	if t.lost.Load() != nil || t.releasing.Load() {
		return 0
	}
	return max(t.Deadline()-t.Clock.Elapsed(), 0)
}

// Times returns how long the lease has lasted, and how long it lasts without another renewal. The second is
// negative after the deadline.
func (t *Term) Times() (held, left time.Duration) {
	now, until := t.Clock.Elapsed(), t.Deadline()
	left = until - now
	if t.lost.Load() != nil {
		until = time.Duration(t.ended.Load())
	}
	return min(now, until) - t.since, left
}
