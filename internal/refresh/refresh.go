// Package refresh renews a lease in time, or reports in time that it couldn't. It knows nothing of
// locks and stores: it calls a function.
package refresh

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// ErrDeadline is returned by Now when the deadline has passed without a renewal.
var ErrDeadline = errors.New("no renewal was answered before the deadline")

// ErrTimeout is the failure that is reported if no attempt has returned an error yet.
var ErrTimeout = errors.New("no answer in time")

type stopError struct{ error }

// Stop wraps the error of an attempt that found the lease lost. Run then returns err at once.
func Stop(err error) error { return stopError{err} }

// Renewal is the result of an attempt.
type Renewal struct {
	// Sent is when the request that renewed the lease was sent, on the clock's Elapsed. A failed
	// attempt can find that an earlier one was applied although its answer was lost. Then Sent
	// extends the lease, but Now still returns the error.
	Sent time.Duration
	// Commit, if set, stores the results of the attempt, even if it failed half-way. Run calls it
	// if the answer came before the deadline. The attempt itself must change nothing, because Run
	// doesn't wait for it beyond the deadline.
	Commit func()
}

// Refresher renews a lease by calling Attempt. Create it with New, and call Run once.
type Refresher struct {
	Schedule
	Clock clock.Clock
	// Start is when the request that began the lease was sent.
	Start time.Duration
	// Attempt sends one renewal. Its context ends at the deadline. The attempt bounds its requests
	// itself, so that a slow store is no failure. Unless full is set, it needn't repeat the parts that
	// earlier failed attempts have renewed.
	Attempt func(ctx context.Context, full bool) (Renewal, error)
	// Failed is called for each failure, as Schedule defines it, with the number of failures in a row,
	// and whether the refresher gives up. If a failure takes longer than MaxSilence, Failed is also
	// called before the first one, with n = 0.
	Failed func(n int, gaveUp bool, err error)
	// Extended is called with each new deadline, which is a value of the clock's Elapsed.
	Extended func(deadline time.Duration)
	// Jitter returns how long before the end of the Interval the next renewal is due, from 0 to
	// most, so that many holders don't renew at the same time.
	Jitter func(most time.Duration) time.Duration
	// Drain is how long Run waits for an attempt that is under way when its context ends: the
	// duration of one request.
	Drain time.Duration

	demands chan chan error
}

// New returns a Refresher with these fields. Its Now can be called before Run.
func New(r Refresher) *Refresher {
	r.demands = make(chan chan error)
	return &r
}

// Now renews at once, and returns the error of that attempt. If an attempt is under way, Now renews
// after it, because that attempt might have looked at the lease before Now was called. A failure of
// an attempt that only Now has asked for doesn't count. The caller of Run closes ended after Run has
// returned. If an attempt returns Stop, Now waits for that.
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
	watch   *clock.Watch
	running *attempt     // the attempt that is under way, or nil
	waiting []chan error // calls of Now that wait for the next attempt
}

// progress is the state since the last renewal.
type progress struct {
	last     time.Duration // when the last renewal was sent
	next     time.Duration // when the next attempt is due
	began    time.Duration // when the first attempt that was due began
	tries    int           // attempts that were due and failed
	failures int           // failures in a row, which Failed has reported
	warned   bool          // Failed was called before the first failure was complete
	err      error         // why the last attempt failed, or nil
}

// attempt is a renewal that is under way.
type attempt struct {
	due     bool // the renewal was due, so a failure counts; false if only Now asked for it
	cancel  context.CancelFunc
	answer  chan answer
	waiters []chan error
}

type answer struct {
	renewal Renewal
	err     error
}

// Run renews until ctx ends, an attempt returns Stop, or the deadline passes. In the last case
// expired is true, and err is the last failure, or nil if this process didn't run. Run repeats an
// attempt that fails, after a pause of at most 10 s. It returns by the deadline, even if an attempt
// hangs, or, if the machine was suspended, within half a second after it woke. When ctx ends, Run
// waits up to Drain for the attempt that is under way, so that no request of ours can undo the
// caller's next steps.
func (r *Refresher) Run(ctx context.Context) (expired bool, err error) {
	s := &run{Refresher: r, watch: clock.NewWatch(r.Clock)}
	defer s.watch.Stop()
	s.renewed(r.Start)
	stopped := ErrDeadline // the error for calls of Now that still wait
	defer func() {
		s.running.end(stopped)
		reply(s.waiting, stopped)
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
		for _, next := range []time.Duration{s.nextFailure(), s.nextWarning()} {
			if next > now {
				wake = min(wake, next)
			}
		}
		select {
		case <-ctx.Done():
			if a, ok := s.drain(); ok {
				if stop, ok := errors.AsType[stopError](a.err); ok {
					return false, stop.error
				}
				s.take(a, deadline) // the caller's next steps need to know what was renewed
			}
			return false, context.Cause(ctx)
		case <-s.watch.After(min(wake-now, deadline-now)):
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

// renewed schedules the next renewal. It must not be later than the Interval, or less time would be
// left for attempts before the deadline.
func (s *run) renewed(sent time.Duration) {
	most := s.Interval / 10
	s.progress = progress{last: sent, next: sent + s.Interval - min(max(s.Jitter(most), 0), most)}
}

// start begins an attempt. Its context doesn't end with ctx, because Run waits for its answer.
func (s *run) start(ctx context.Context, now, deadline time.Duration, due bool) {
	if s.tries == 0 {
		s.began = now
	}
	full := s.tries == 0 || len(s.waiting) > 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline-now)
	a := &attempt{due: due, cancel: cancel, answer: make(chan answer, 1), waiters: s.waiting}
	s.running, s.waiting = a, nil
	go func() {
		renewal, err := s.Attempt(ctx, full)
		a.answer <- answer{renewal, err}
	}()
}

// take handles the answer of the attempt that is under way, which has then ended.
func (s *run) take(a answer, deadline time.Duration) {
	done := s.running
	s.running = nil
	answered := s.Clock.Elapsed()
	if answered >= deadline {
		if done.due {
			s.tries++ // it was tried, although no attempt is under way any more
		}
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

// end cancels an attempt, unless it is nil, and answers its waiters.
func (a *attempt) end(err error) {
	if a != nil {
		a.cancel()
		reply(a.waiters, err)
	}
}

func reply(waiters []chan error, err error) {
	for _, w := range waiters {
		w <- err
	}
}

// drain waits up to Drain for the answer of the attempt that is under way, if there is one.
func (s *run) drain() (a answer, ok bool) {
	if s.running == nil {
		return a, false
	}
	for end := s.Clock.Elapsed() + s.Drain; ; {
		left := end - s.Clock.Elapsed()
		if left <= 0 {
			return a, false
		}
		select {
		case a = <-s.running.answer:
			return a, true
		case <-s.watch.After(left):
		}
	}
}

// tried reports whether the renewal is due and was attempted. A process that was stopped meanwhile has
// attempted nothing, and so hasn't failed.
func (s *run) tried() bool { return s.tries > 0 || s.running != nil && s.running.due }

// nextFailure returns when the next failure is complete unless an answer comes first, or 0 if none has
// begun. The last failure is complete at the deadline, which countFailures checks.
func (s *run) nextFailure() time.Duration {
	if !s.tried() || s.failures >= s.Failures-1 {
		return 0
	}
	return s.began + time.Duration(s.failures+1)*s.Failure
}

// MaxSilence is how long renewals fail before a person hears of it. A failure of a long lease takes much longer.
const MaxSilence = 30 * time.Second

// nextWarning returns when the call of Failed with n = 0 is due, or 0 if none is.
func (s *run) nextWarning() time.Duration {
	if !s.tried() || s.warned || s.failures > 0 || s.Failure <= MaxSilence {
		return 0
	}
	return s.began + MaxSilence
}

// countFailures calls Failed if another failure is complete, or a warning is due.
func (s *run) countFailures(now time.Duration) {
	n := s.failures
	for next := s.nextFailure(); next != 0 && now >= next; next = s.nextFailure() {
		s.failures++
	}
	gaveUp := s.tried() && now >= s.last+s.Deadline
	if gaveUp {
		s.failures = s.Failures
	}
	if next := s.nextWarning(); next != 0 && now >= next {
		s.warned = true
	} else if s.failures == n {
		return
	}
	if s.err == nil {
		s.err = ErrTimeout
	}
	s.Failed(s.failures, gaveUp, s.err)
}
