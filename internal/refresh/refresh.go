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

// errTimeout is the failure of an attempt that had no answer yet.
var errTimeout = errors.New("no answer in time")

// stopError marks a failure after which there is nothing left to renew.
type stopError struct{ err error }

func (e stopError) Error() string { return e.err.Error() }
func (e stopError) Unwrap() error { return e.err }

// Stop wraps the error of an attempt that found that there is nothing left to
// renew: Run ends at once and returns err.
func Stop(err error) error { return stopError{err} }

// Renewal is the outcome of an attempt.
type Renewal struct {
	// Sent is when the request that renewed the lease was sent, on the clock's
	// Elapsed. An attempt that failed may have found out that an earlier one, which got no
	// answer, was applied: then it extends the lease, and has failed for who has asked for it.
	Sent time.Duration
	// Commit, if set, keeps what the attempt has achieved, also of one that
	// failed half-way. Run's goroutine calls it if the answer came before the
	// deadline. An attempt must change nothing by itself, because Run doesn't
	// wait for one beyond the deadline.
	Commit func()
}

// Refresher renews a lease by calling Attempt. Set the exported fields, then
// call Run once.
type Refresher struct {
	Schedule
	Clock clock.Clock
	// Start is when the request that began the lease was sent.
	Start time.Duration
	// Attempt sends one renewal. Its context ends at the deadline; the attempt
	// bounds its requests itself, so that a slow store is no failure. Unless it
	// begins anew, it needn't repeat what the attempts before it, which failed
	// half-way, have renewed.
	Attempt func(ctx context.Context, anew bool) (Renewal, error)
	// Failed, if set, is called for each failure: how many in a row, and whether
	// the refresher gives up.
	Failed func(n int, gaveUp bool, err error)
	// Extended, if set, is called with each new deadline, on the clock's Elapsed.
	Extended func(deadline time.Duration)
	// Early, if set, returns how much before the end of the Interval the next renewal is to
	// be sent, from 0 to most, so that many holders don't renew at once.
	Early func(most time.Duration) time.Duration
	// Drain is how long Run waits for an attempt that is under way when its
	// context ends: as long as one request lasts.
	Drain time.Duration

	demands chan chan error
}

// New returns a Refresher whose Now can be called.
func New(r Refresher) *Refresher {
	r.demands = make(chan chan error)
	return &r
}

// attempt is a renewal that is under way.
type attempt struct {
	due     bool // not only because somebody asked: it counts if it fails
	cancel  context.CancelFunc
	answer  chan answer
	waiters []chan error
}

type answer struct {
	renewal Renewal
	err     error
}

// progress is how far Run has come with the next renewal.
type progress struct {
	last     time.Duration // when the last renewal was sent
	next     time.Duration // when the next attempt is due
	began    time.Duration // when the first attempt that was due was sent
	tries    int           // attempts that were due and failed
	failures int           // of which Failed was told
	err      error         // of the last attempt that failed
}

// renewed begins the wait for the next renewal.
func (r *Refresher) renewed(sent time.Duration) progress {
	return progress{last: sent, next: sent + r.Interval - r.early()}
}

// early is at most a tenth of the interval, and never negative: a renewal that came later
// would leave less time for the attempts before the deadline.
func (r *Refresher) early() time.Duration {
	if r.Early == nil {
		return 0
	}
	most := r.Interval / 10
	return min(max(r.Early(most), 0), most)
}

// Run renews until ctx ends, an attempt says Stop, or the deadline passes. It
// never returns later than the deadline, even if an attempt hangs, or, if the
// machine was suspended, than half a second after it woke. When ctx ends it
// waits for the attempt that is under way, for no longer than Drain, so that no
// request of ours is left to undo what the caller does next.
//
// An attempt that fails is repeated, with pauses of at most 10 s, until the
// deadline. The deadline's error is an *ExpiredError.
func (r *Refresher) Run(ctx context.Context) error {
	var (
		p       = r.renewed(r.Start)
		running *attempt
		waiting []chan error // for the next attempt
	)
	defer func() {
		if running != nil {
			running.end(ErrDeadline)
		}
		tell(waiting, ErrDeadline)
	}()
	for {
		now := r.Clock.Elapsed()
		deadline := p.last + r.Deadline
		r.countFailures(&p, now, running)
		if now >= deadline {
			return &ExpiredError{p.err}
		}
		if due := now >= p.next; running == nil && (due || len(waiting) > 0) {
			if p.tries == 0 {
				p.began = now
			}
			running = r.start(ctx, deadline-now, p.tries == 0 || len(waiting) > 0)
			running.due = due
			running.waiters, waiting = waiting, nil
		}

		wake, answers := deadline, chan answer(nil)
		if running != nil {
			answers = running.answer
		} else {
			wake = min(p.next, deadline)
		}
		if next := r.nextFailure(p, running); next > now {
			wake = min(wake, next)
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
			if errors.As(a.err, &stop) {
				done.end(stop.err)
				tell(waiting, stop.err)
				waiting = nil
				return stop.err
			}
			answered := r.Clock.Elapsed()
			if answered >= deadline {
				done.end(ErrDeadline)
				continue
			}
			if a.renewal.Commit != nil {
				a.renewal.Commit()
			}
			if a.err == nil || a.renewal.Sent > p.last {
				p = r.renewed(max(p.last, a.renewal.Sent))
				if r.Extended != nil {
					r.Extended(p.last + r.Deadline)
				}
			} else if done.due {
				p.tries++
				p.err, p.next = a.err, answered+pause(p.tries, deadline-answered)
			}
			done.end(a.err)
		}
	}
}

// tried reports whether the renewal is due and an attempt at it was made: a
// process that was stopped has not failed.
func (p progress) tried(running *attempt) bool {
	return p.tries > 0 || running != nil && running.due
}

// nextFailure is when the next failure is complete unless an answer comes
// before, or 0. The last one is complete at the deadline.
func (r *Refresher) nextFailure(p progress, running *attempt) time.Duration {
	if !p.tried(running) || p.failures >= r.Failures-1 {
		return 0
	}
	return p.began + time.Duration(p.failures+1)*r.Failure
}

// countFailures calls Failed for each failure that is complete.
func (r *Refresher) countFailures(p *progress, now time.Duration, running *attempt) {
	n := p.failures
	for next := r.nextFailure(*p, running); next != 0 && now >= next; next = r.nextFailure(*p, running) {
		p.failures++
	}
	gaveUp := p.tried(running) && now >= p.last+r.Deadline
	if gaveUp {
		p.failures = r.Failures
	}
	if p.failures == n {
		return
	}
	if p.err == nil {
		p.err = errTimeout
	}
	if r.Failed != nil {
		r.Failed(p.failures, gaveUp, p.err)
	}
}

// Now renews at once, or when the attempt that is under way is over, which may have
// looked before Now was called, and returns that attempt's error. A failure that only
// Now asked for doesn't count. ended is closed when Run has returned.
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
func (r *Refresher) start(ctx context.Context, left time.Duration, anew bool) *attempt {
	actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	a := &attempt{cancel: cancel, answer: make(chan answer, 1)}
	go func() {
		renewal, err := r.Attempt(actx, anew)
		a.answer <- answer{renewal, err}
	}()
	return a
}

// drain waits for the attempt that is under way, for no longer than Drain.
func (r *Refresher) drain(a *attempt) error {
	if a == nil {
		return nil
	}
	for end := r.Clock.Elapsed() + r.Drain; ; {
		left := end - r.Clock.Elapsed()
		if left <= 0 {
			return nil
		}
		select {
		case got := <-a.answer:
			return got.err
		case <-r.Clock.After(min(left, clock.Tick)):
		}
	}
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
