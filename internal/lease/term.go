// Package lease holds a lock that was acquired: it renews the lock before its deadline, and ends the context of the
// work when the lock is lost. Only the owner of a lease knows the system that stores the lock.
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

// Terms are the durations of a lease, and its owner's functions. Loss must be set, and either Attempt or Renewal. The
// other functions can be nil.
type Terms struct {
	refresh.Schedule
	Clock clock.Clock
	// Sent is when the request that acquired the lock was sent, on the clock's Elapsed. Seen is a reading of
	// the clocks from before the last request that showed the lock.
	Sent time.Duration
	Seen clock.Reading
	// Parent is the parent of the lease's context. The renewals go on when it ends.
	Parent context.Context
	// Jitter, Drain, Attempt and Failed are fields of refresh.Refresher.
	Jitter  func(most time.Duration) time.Duration
	Drain   time.Duration
	Attempt func(ctx context.Context, full bool) (refresh.Renewal, error)
	Failed  func(n int, gaveUp bool, err error)
	// Renewal replaces Attempt for a lock that one request renews. Its context ends after Timeout. It returns a
	// fault.HandleLost if the lock is certainly lost.
	Renewal func(context.Context) error
	// Gone is closed when the lock's system reports a loss. The lease then renews the lock at once, to find out
	// whether it is lost.
	Gone <-chan struct{}
	// Watch runs during the renewals, until its context ends. If it is nil, the lease renews the lock at once after
	// a step of the wall clock, because the machine might have been paused.
	Watch func(context.Context)
	// Extended is called after each renewal.
	Extended func()
	// Loss returns the loss that ended the renewals. err is its cause; if the lease has expired, err is the last
	// failure, or nil.
	Loss func(expired bool, err error) Loss
	// Lost is called with the loss before the context ends.
	Lost func(error)
}

// Loss is why a lease ended before its release.
type Loss struct {
	Err      error
	Definite bool // the lock can't be resumed
}

// Term is the life of a lock from an acquire, or a resume, to its loss or release. It has one context. A resume
// begins another Term.
type Term struct {
	Terms
	lease atomic.Pointer[Lease] // nil for a locking.Guard
	since time.Duration         // when it began, on the clock's Elapsed

	ctx       context.Context
	cancel    context.CancelCauseFunc
	refresher *refresh.Refresher
	stop      context.CancelCauseFunc
	done      chan struct{} // closed when the renewals have ended
	deadline  atomic.Int64
	seen      atomic.Pointer[clock.Reading]
	lost      atomic.Pointer[Loss]
	ended     atomic.Int64 // when the lock was lost, on the clock's Elapsed
	releasing atomic.Bool
	reported  atomic.Bool // ReportEnd was called
}

// errStopped ends the renewals of a lock that isn't lost.
var errStopped = errors.New("the renewals have ended")

// termKey is the key under which a lease's context has its Term.
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
	attempt, early, failed := t.Attempt, t.Jitter, t.Failed
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
		Attempt: attempt, Jitter: early, Failed: failed, Extended: t.extended,
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
		t.Watch = t.renewIfStepped
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

func (t *Term) renewIfStepped(ctx context.Context) {
	w := clock.NewWatch(t.Clock)
	defer w.Stop()
	for pause := t.Interval; w.Sleep(ctx, pause) == nil; {
		pause = t.Interval
		if clock.Read(t.Clock).SteppedSince(t.Seen()) {
			_ = t.Renew(ctx)
			pause = clock.Tick // look again soon, because the renewal might have failed
		}
	}
}

// renew is an Attempt that calls Renewal. The renewed lease begins when the request was sent.
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

// Lose records a loss. It replaces an earlier one if Release or Resume has found another.
func (t *Term) Lose(loss Loss) {
	t.ended.CompareAndSwap(0, int64(min(t.Clock.Elapsed(), t.Deadline())))
	t.lost.Store(&loss)
}

// Fail ends the renewals because of err, and returns when the context has ended.
func (t *Term) Fail(err error) {
	t.stop(err)
	<-t.done
}

// Release ends the context and the renewals. It waits for a renewal that is under way, which could otherwise undo the
// release.
func (t *Term) Release() {
	t.release()
	<-t.done
}

func (t *Term) release() {
	t.releasing.Store(true)
	t.cancel(fault.Released)
	t.stop(errStopped)
}

// Renew renews the lock at once. It returns the loss if the lease is lost, and fault.Released if it is released.
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

// Context returns the context, whose cause is the loss or fault.Released when the lease ends. It also ends with
// Parent.
func (t *Term) Context() context.Context { return t.ctx }

// Deadline is when the lease ends without another renewal, on the clock's Elapsed.
func (t *Term) Deadline() time.Duration { return time.Duration(t.deadline.Load()) }

// Seen returns a reading of the clocks from before the last request that showed the lock.
func (t *Term) Seen() clock.Reading { return *t.seen.Load() }

// Saw records a reading of the clocks from before a request that showed the lock.
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

// ReportEnd returns true only at its first call, so that just one event counts as the end of a Term.
func (t *Term) ReportEnd() (first bool) { return !t.reported.Swap(true) }

// Releasing reports whether the release has begun. After that, no renewal must be sent.
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
