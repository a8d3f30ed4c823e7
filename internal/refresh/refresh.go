// Package refresh renews a lease in time, or says in time that it couldn't. It
// knows nothing of locks and stores: it drives a function.
package refresh

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// ErrDeadline is returned by Now when the deadline passed without a renewal.
var ErrDeadline = errors.New("no renewal was answered before the deadline")

// errTimeout is the failure of an attempt that had no answer yet.
var errTimeout = errors.New("no answer in time")

type stopError struct{ error }

// Stop wraps the error of an attempt that found that there is nothing left to
// renew: Run ends at once and returns err.
func Stop(err error) error { return stopError{err} }

// Renewal is the outcome of an attempt.
type Renewal struct {
	// Sent is when the request that renewed the lease was sent, on the clock's Elapsed. An
	// attempt that failed can have found out that an earlier one, which got no answer, was
	// applied: then it extends the lease, and has still failed for the caller of Now.
	Sent time.Duration
	// Commit, if set, keeps what the attempt has achieved, even if it failed half-way. Run
	// calls it if the answer came before the deadline. An attempt must change nothing by
	// itself, because Run doesn't wait for one beyond the deadline.
	Commit func()
}

// Refresher renews a lease by calling Attempt. Set the exported fields, then
// call Run once.
type Refresher struct {
	Schedule
	Clock clock.Clock
	// Start is when the request that began the lease was sent.
	Start time.Duration
	// Attempt sends one renewal. Its context ends at the deadline; the attempt bounds its
	// requests itself, so that a slow store is no failure. Unless it begins anew, it needn't
	// repeat what attempts that failed half-way have renewed.
	Attempt func(ctx context.Context, anew bool) (Renewal, error)
	// Failed is called for each failure: how many in a row, and whether the refresher gives up.
	Failed func(n int, gaveUp bool, err error)
	// Extended is called with each new deadline, on the clock's Elapsed.
	Extended func(deadline time.Duration)
	// Early returns how much before the end of the Interval the next renewal is to be sent,
	// from 0 to most, so that many holders don't renew at once.
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

// Now renews at once, or when the attempt that is under way is over, which can have
// looked before Now was called, and returns that attempt's error. A failure that only
// Now asked for doesn't count. ended is closed after Run has returned. Now waits for that if
// an attempt says Stop.
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
		if stop, ok := err.(stopError); ok {
			<-ended
			return stop.error
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run is the state of a Run.
type run struct {
	*Refresher
	progress
	running *attempt     // under way, or nil
	waiting []chan error // for the next attempt
}

// progress is how far a Run has come with the next renewal.
type progress struct {
	last     time.Duration // when the last renewal was sent
	next     time.Duration // when the next attempt is due
	began    time.Duration // when the first attempt that was due was sent
	tries    int           // attempts that were due and failed
	failures int           // calls of Failed
	err      error         // of the last attempt that failed
}

// attempt is a renewal that is under way.
type attempt struct {
	due     bool // not only because Now asked: it counts if it fails
	cancel  context.CancelFunc
	answer  chan answer
	waiters []chan error
}

type answer struct {
	renewal Renewal
	err     error
}

// Run renews until ctx ends, an attempt says Stop, or the deadline passes: then expired is true, and
// err the last failure, or nil if this process didn't run. It repeats an attempt that fails, with pauses
// of at most 10 s. It never returns later than the deadline, even if an attempt hangs, or, if the machine was suspended,
// than half a second after it woke. When ctx ends it waits for the attempt that is under way, for
// no longer than Drain, so that no request of ours is left to undo what the caller does next.
func (r *Refresher) Run(ctx context.Context) (expired bool, err error) {
	s := &run{Refresher: r}
	s.renewed(r.Start)
	stopped := ErrDeadline // for those that wait for an answer
	defer func() {
		s.running.end(stopped)
		tell(s.waiting, stopped)
	}()
	for {
		now := r.Clock.Elapsed()
		deadline := s.last + r.Deadline
		s.countFailures(now)
		if now >= deadline {
			return true, s.err
		}
		if due := now >= s.next; s.running == nil && (due || len(s.waiting) > 0) {
			s.start(ctx, now, deadline, due)
		}
		wake, answers := s.next, chan answer(nil)
		if s.running != nil {
			wake, answers = deadline, s.running.answer
		}
		if next := s.nextFailure(); next > now {
			wake = min(wake, next)
		}
		select {
		case <-ctx.Done():
			if stop, ok := errors.AsType[stopError](s.drain()); ok {
				return false, stop.error
			}
			return false, context.Cause(ctx)
		case <-r.Clock.After(min(wake-now, deadline-now, clock.Tick)):
		case demand := <-r.demands:
			s.waiting = append(s.waiting, demand)
		case a := <-answers:
			if stop, ok := errors.AsType[stopError](a.err); ok {
				stopped = stop
				return false, stop.error
			}
			s.take(a, deadline)
		}
	}
}

// renewed begins the wait for the next renewal. It never comes late: then less time would be
// left for the attempts before the deadline.
func (s *run) renewed(sent time.Duration) {
	most := s.Interval / 10
	s.progress = progress{last: sent, next: sent + s.Interval - min(max(s.Early(most), 0), most)}
}

// start sends an attempt, which doesn't end with ctx: see Run.
func (s *run) start(ctx context.Context, now, deadline time.Duration, due bool) {
	if s.tries == 0 {
		s.began = now
	}
	anew := s.tries == 0 || len(s.waiting) > 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline-now)
	a := &attempt{due: due, cancel: cancel, answer: make(chan answer, 1), waiters: s.waiting}
	s.running, s.waiting = a, nil
	go func() {
		renewal, err := s.Attempt(ctx, anew)
		a.answer <- answer{renewal, err}
	}()
}

// take takes the answer of the attempt that was under way.
func (s *run) take(a answer, deadline time.Duration) {
	done := s.running
	s.running = nil
	answered := s.Clock.Elapsed()
	if answered >= deadline {
		done.end(ErrDeadline)
		return
	}
	if a.renewal.Commit != nil {
		a.renewal.Commit()
	}
	if a.err == nil || a.renewal.Sent > s.last {
		s.renewed(max(s.last, a.renewal.Sent))
		s.Extended(s.last + s.Deadline)
	} else if done.due {
		s.tries++
		s.err, s.next = a.err, answered+pause(s.tries, deadline-answered)
	}
	done.end(a.err)
}

// end cancels an attempt, if there is one, and answers those that wait for it.
func (a *attempt) end(err error) {
	if a != nil {
		a.cancel()
		tell(a.waiters, err)
	}
}

func tell(waiters []chan error, err error) {
	for _, w := range waiters {
		w <- err
	}
}

// drain waits for the attempt that is under way, for no longer than Drain.
func (s *run) drain() error {
	if s.running == nil {
		return nil
	}
	for end := s.Clock.Elapsed() + s.Drain; ; {
		left := end - s.Clock.Elapsed()
		if left <= 0 {
			return nil
		}
		select {
		case got := <-s.running.answer:
			return got.err
		case <-s.Clock.After(min(left, clock.Tick)):
		}
	}
}

// tried reports whether the renewal is due and an attempt at it was made: a
// process that was stopped has not failed.
func (s *run) tried() bool { return s.tries > 0 || s.running != nil && s.running.due }

// nextFailure is when the next failure is complete unless an answer comes
// before, or 0. The last one is complete at the deadline.
func (s *run) nextFailure() time.Duration {
	if !s.tried() || s.failures >= s.Failures-1 {
		return 0
	}
	return s.began + time.Duration(s.failures+1)*s.Failure
}

// countFailures calls Failed if failures are complete.
func (s *run) countFailures(now time.Duration) {
	n := s.failures
	for next := s.nextFailure(); next != 0 && now >= next; next = s.nextFailure() {
		s.failures++
	}
	gaveUp := s.tried() && now >= s.last+s.Deadline
	if gaveUp {
		s.failures = s.Failures
	}
	if s.failures == n {
		return
	}
	if s.err == nil {
		s.err = errTimeout
	}
	s.Failed(s.failures, gaveUp, s.err)
}
