// Package refresh renews a lease in time, or says in time that it couldn't. It
// knows nothing of locks and stores: it drives a function.
package refresh

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// ErrDeadline is returned by Run when the deadline passed without a renewal.
var ErrDeadline = errors.New("no renewal was answered before the deadline")

// ExpiredError is ErrDeadline with the last failure, which is nil if there was
// none: then this process didn't run.
type ExpiredError struct{ Last error }

func (e *ExpiredError) Error() string {
	if e.Last == nil {
		return ErrDeadline.Error()
	}
	return ErrDeadline.Error() + ": " + e.Last.Error()
}

// Is makes errors.Is(err, ErrDeadline) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrDeadline }

// Unwrap gives the last failure.
func (e *ExpiredError) Unwrap() error { return e.Last }

// errTimeout is the failure of an attempt that had no answer in its time.
var errTimeout = errors.New("no answer in time")

// stopError marks a failure after which there is nothing left to renew.
type stopError struct{ err error }

func (e stopError) Error() string { return e.err.Error() }
func (e stopError) Unwrap() error { return e.err }

// Stop wraps the error of an attempt that found that there is nothing left to
// renew: Run ends at once and returns err.
func Stop(err error) error { return stopError{err} }

// Renewal is the outcome of an attempt that succeeded.
type Renewal struct {
	// Sent is when the request that renewed the lease was sent, on the clock's
	// Elapsed.
	Sent time.Duration
	// Commit, if set, is called by Run's goroutine if the answer came in time.
	// An attempt must change nothing by itself: it may have been given up, with
	// the next one under way.
	Commit func()
}

// Refresher renews a lease by calling Attempt. Set the exported fields, then
// call Run once.
type Refresher struct {
	Schedule
	Clock clock.Clock
	// Start is when the request that began the lease was sent.
	Start time.Duration
	// Attempt sends one renewal. Its context ends with the attempt's timeout.
	Attempt func(ctx context.Context) (Renewal, error)
	// Failed, if set, is told of each failure: how many in a row, and that the
	// refresher gave up.
	Failed func(n int, gaveUp bool, err error)
	// Extended, if set, is told of each new deadline, on the clock's Elapsed.
	Extended func(deadline time.Duration)

	demands chan chan error
}

// New returns a Refresher whose Now can be called.
func New(r Refresher) *Refresher {
	r.demands = make(chan chan error)
	return &r
}

// attempt is a renewal that is under way.
type attempt struct {
	ends    time.Duration
	due     bool // not only because somebody asked: its failure counts
	cancel  context.CancelFunc
	answer  chan answer
	waiters []chan error
}

type answer struct {
	renewal Renewal
	err     error
}

// Run renews until ctx ends, an attempt says Stop, or the deadline passes. It
// never returns later than the deadline, even if an attempt hangs, or, if the
// machine was suspended, than half a second after it woke. When ctx ends it
// waits for the attempt that is under way, for no longer than its timeout, so
// that no request of ours is left to undo what the caller does next.
//
// The deadline's error is an *ExpiredError. After three failures it sends no more
// and waits for the deadline.
func (r *Refresher) Run(ctx context.Context) error {
	var (
		last     = r.Start
		next     = last + r.Interval
		failures = 0
		lastErr  error
		running  *attempt
		waiting  []chan error // for the next attempt
	)
	fail := func(err error) {
		failures++
		lastErr = err
		next = last + r.Interval + time.Duration(failures)*r.Retry
		if r.Failed != nil {
			r.Failed(failures, failures == r.Failures, err)
		}
	}
	defer func() {
		if running != nil {
			running.end(ErrDeadline)
		}
		tell(waiting, ErrDeadline)
	}()
	for {
		now := r.Clock.Elapsed()
		deadline := last + r.Deadline
		if now >= deadline {
			return &ExpiredError{lastErr}
		}
		gaveUp := failures >= r.Failures
		if running != nil && now >= running.ends {
			if running.due {
				fail(errTimeout)
			}
			running.end(errTimeout)
			running = nil
			continue
		}
		due := !gaveUp && now >= next
		if running == nil && (due || len(waiting) > 0) {
			running = r.start(ctx, min(now+r.Timeout, deadline))
			running.due = due
			running.waiters, waiting = waiting, nil
		}

		wake, answers := deadline, chan answer(nil)
		switch {
		case running != nil:
			wake, answers = running.ends, running.answer
		case !gaveUp:
			wake = min(next, deadline)
		}
		select {
		case <-ctx.Done():
			var stop stopError
			if errors.As(r.drain(running), &stop) {
				return stop.err
			}
			return context.Cause(ctx)
		case <-r.Clock.After(min(wake-now, clock.Tick)):
		case demand := <-r.demands:
			waiting = append(waiting, demand)
		case a := <-answers:
			done := running
			running = nil
			var stop stopError
			switch {
			case errors.As(a.err, &stop):
				done.end(stop.err)
				tell(waiting, stop.err)
				waiting = nil
				return stop.err
			case r.Clock.Elapsed() >= deadline:
				done.end(ErrDeadline)
			case a.err != nil:
				if done.due {
					fail(a.err)
				}
				done.end(a.err)
			default:
				if a.renewal.Commit != nil {
					a.renewal.Commit()
				}
				failures, lastErr = 0, nil
				last = max(last, a.renewal.Sent)
				next = last + r.Interval
				if r.Extended != nil {
					r.Extended(last + r.Deadline)
				}
				done.end(nil)
			}
		}
	}
}

// Now renews at once, or when the attempt that is under way is over, which may have
// looked before Now was called, and returns what came of it. A failure that only Now
// asked for is not one of those after which the refresher gives up. ended tells it that
// Run has returned.
func (r *Refresher) Now(ctx context.Context, ended <-chan struct{}) error {
	answer := make(chan error, 1)
	select {
	case r.demands <- answer:
	case <-ended:
		return ErrDeadline
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start sends an attempt. It doesn't end with ctx: see Run.
func (r *Refresher) start(ctx context.Context, ends time.Duration) *attempt {
	actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ends-r.Clock.Elapsed())
	a := &attempt{ends: ends, cancel: cancel, answer: make(chan answer, 1)}
	go func() {
		renewal, err := r.Attempt(actx)
		a.answer <- answer{renewal, err}
	}()
	return a
}

// drain waits for the attempt that is under way until its time is over.
func (r *Refresher) drain(a *attempt) error {
	for a != nil && r.Clock.Elapsed() < a.ends {
		select {
		case got := <-a.answer:
			return got.err
		case <-r.Clock.After(min(a.ends-r.Clock.Elapsed(), clock.Tick)):
		}
	}
	return nil
}

// end cancels what is left of an attempt and tells those who wait for it.
func (a *attempt) end(err error) {
	a.cancel()
	tell(a.waiters, err)
	a.waiters = nil
}

func tell(waiters []chan error, err error) {
	for _, w := range waiters {
		w <- err
	}
}
