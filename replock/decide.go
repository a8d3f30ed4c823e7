package replock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/store"
)

// An acquire repeats its work on three levels. This file decides on all of them:
//
//   - after a look, whether to look again under the same flag: afterLook, afterClaim;
//   - after an attempt, whether to start another one, at once or from the queue: afterAttempt;
//   - after a poll in the queue, whether to go on waiting: afterPoll.
//
// On the level below, repeat sends one request again until its budget is used up. The limits here
// don't count these sends.
const (
	// maxTries is the number of attempts in a row that can end too late. After a suspend of the machine the next
	// attempt succeeds. After three late attempts another one won't succeed.
	maxTries = 3
	// maxSlow is maxTries for a store that is too slow for the ttl. Only the fastest round trips count, so two equal
	// measurements are enough.
	maxSlow = 2
	// maxAgain is how often an acquirer looks again because a listed object was missing when its body was read.
	maxAgain = 3
	// leastAgain is the shortest pause before an acquirer looks again after a collision. A busy machine needs some
	// milliseconds before the other process runs. firstAgain is the longest first pause, and the first pause where no
	// collision is the reason. The pauses double up to a bound: mostStay while the others withdraw because of us, and
	// mostAgain if they might withdraw.
	leastAgain = 4 * time.Millisecond
	firstAgain = 100 * time.Millisecond
	mostStay   = 400 * time.Millisecond
	mostAgain  = 200 * time.Millisecond
	// maxUnlisted is how often an attempt accepts that the store has answered its put of lock.exclusive, and the next look
	// doesn't list it. Another client can have removed it, but not each time.
	maxUnlisted = 3
	// maxRotation is how long a waiter continues without valid credentials. Programs that rotate a file of credentials
	// can replace it a minute after the old ones have expired.
	maxRotation = 2 * time.Minute
)

// step is the next step of an acquirer.
type step int

const (
	goOn       step = iota // take the next step of the protocol
	lookAgain              // look again under the same flag
	stepDown               // delete lock.exclusive, then look again
	startAgain             // start another attempt at once
	queueUp                // wait in the queue, then start another attempt
	giveUp                 // return the error
)

// decision is a step, and the pause before it. The caller jitters the pause.
type decision struct {
	step  step
	pause time.Duration
	err   error // set if step is giveUp
}

// decider counts the attempts and failures of one acquire, and decides its next step.
type decider struct {
	l       *Locker
	late    int           // attempts in a row that ended too late
	failing time.Duration // Clock.Elapsed, when the store began to fail, or 0
	try     lookCounts    // of the present attempt
}

type lookCounts struct {
	beaten    int           // claims of lock.exclusive that another acquirer was faster than
	unlisted  int           // looks that should have listed our lock.exclusive and didn't
	vanished  int           // looks in which a listed object was missing when its body was read
	conflicts int           // looks that found live locks
	since     time.Duration // when the first look that found a live lock was sent
	paused    time.Duration // after looks that found live locks, without the round trips
	until     time.Duration // when this attempt withdraws at the latest, even if the others might withdraw first
}

// afterLook decides what follows a look. It never grants the lock: goOn means only that the look found no conflict.
func (a *decider) afterLook(t *attempt, f verdict.Findings, err error) decision {
	switch {
	case err != nil:
		return decision{step: giveUp, err: fault.While("looking for other locks", err)}
	case a.l.opts.Clock.Elapsed() >= t.deadline:
		return decision{step: giveUp, err: t.late()}
	case len(f.Live) > 0:
		return a.afterConflict(t, f)
	case len(f.Vanished) > 0:
		if a.try.vanished == maxAgain {
			return decision{step: giveUp, err: ErrHeld}
		}
		a.try.vanished++
		if a.try.vanished == 1 { // usually it was deleted just after the listing
			return decision{step: lookAgain, pause: t.pauseAfter(1, firstAgain)}
		}
		return decision{step: lookAgain, pause: firstAgain << (a.try.vanished - 2)}
	case len(f.Doubtful) > 0:
		return decision{step: giveUp, err: errDoubt}
	default:
		return a.afterFree(t)
	}
}

// afterFree decides what follows a look that found no conflict. Our lock.exclusive must be in the look if a put of it was
// answered before.
func (a *decider) afterFree(t *attempt) decision {
	missing := t.pointer.answered && !t.listed.pointer
	t.pointer.answered = false
	if missing {
		a.try.unlisted++
	}
	if a.try.unlisted == maxUnlisted {
		return decision{step: giveUp, err: fault.While("looking for other locks", fmt.Errorf("%w: %q", errUnlisted, t.pointer.key))}
	}
	return decision{step: goOn}
}

// afterConflict decides whether this acquirer yields to the live locks that conflict, or looks again until
// their acquirers have withdrawn: Contender.Decide has the rule.
func (a *decider) afterConflict(t *attempt, f verdict.Findings) decision {
	n := &a.try
	if n.conflicts == 0 {
		n.since = f.Now
	}
	n.conflicts++
	next := decision{step: lookAgain}
	trip := t.trips.slowest()
	switch t.contender(n.paused).Decide(f, n.conflicts, f.Now-n.since, f.Now < n.until) {
	case verdict.Stay:
		next.pause, trip = t.pauseAfter(n.conflicts, mostStay), 0
	case verdict.Again:
		next.pause = t.pauseAfter(n.conflicts, mostAgain)
	case verdict.StepDown:
		next = decision{step: stepDown, pause: t.pauseAfter(n.conflicts, mostAgain)}
	default:
		return decision{step: giveUp, err: ErrHeld}
	}
	n.paused += next.pause
	next.pause += trip // for the others' deletes
	return next
}

// pauseAfter returns the pause before the next look, after n looks that have shown a collision. The other acquirer needs
// round trips: to look, and to delete its objects. So the first pause is two round trips, within leastAgain and
// firstAgain. Each later one is twice as long, up to most.
func (t *attempt) pauseAfter(n int, most time.Duration) time.Duration {
	least := min(max(2*t.trips.slowest(), leastAgain), firstAgain)
	return min(least<<min(n-1, 10), most)
}

// afterClaim returns the step after a claim of lock.exclusive, which is a look. If the put was answered, the look comes
// at once: the lock is nearly ours. Otherwise another acquirer was faster. From the second time on a pause comes before
// the look. It stays short, because those acquirers might only come, find the lock held, and go.
func (a *decider) afterClaim(t *attempt) decision {
	next := decision{step: lookAgain}
	if t.pointer.answered {
		return next
	}
	if a.try.beaten++; a.try.beaten > 1 {
		next.pause = min(firstAgain<<min(a.try.beaten-2, 10), mostStay)
	}
	return next
}

// afterAttempt decides what follows an attempt that was withdrawn because of err. waits reports whether the acquirer is
// in the queue and its wait isn't over.
func (a *decider) afterAttempt(t *attempt, err error, waits bool) decision {
	switch {
	case errors.Is(err, ErrHeld), errors.Is(err, errDoubt):
		a.late, a.failing = 0, 0
		return decision{step: queueUp}
	case errors.Is(err, errLate), errors.Is(err, ErrSlow), errors.Is(err, errUnlisted), errors.Is(err, errCopied), t.flag.maybe && a.l.opts.Clock.Elapsed() >= t.deadline:
		a.late++
		if a.late == maxTries || a.late == maxSlow && errors.Is(err, ErrSlow) {
			return decision{step: giveUp, err: fault.While(fmt.Sprintf("acquiring the %s lock", t.mode), err)}
		}
		return decision{step: startAgain}
	case a.endures(err, waits):
		return decision{step: queueUp}
	default:
		return decision{step: giveUp, err: a.unendured(err)}
	}
}

// afterPoll decides what follows a poll of the queue. It returns startAgain if the poll found no conflict, or if the
// ticket is gone.
func (a *decider) afterPoll(t *attempt, f verdict.Findings, err error, waits bool) decision {
	switch {
	case errors.Is(err, errUnlisted), err == nil && len(f.Live)+len(f.Doubtful) == 0:
		return decision{step: startAgain}
	case err == nil:
		a.failing = 0
		return decision{step: queueUp}
	case a.endures(err, waits):
		return decision{step: queueUp}
	default:
		return decision{step: giveUp, err: fault.While(fmt.Sprintf("waiting for the %s lock", t.mode), a.unendured(err))}
	}
}

// endures records a failure of the store, and reports whether a waiting acquirer continues. It gives up once the store
// has failed for a whole ttl, and for maxRotation if the credentials are the reason, or has refused a request for good.
func (a *decider) endures(err error, waits bool) bool {
	if !waits || a.l.final(err) || errors.Is(err, ErrNoFencingToken) {
		return false
	}
	now := a.l.opts.Clock.Elapsed()
	if a.failing == 0 {
		a.failing = now
	}
	most := a.l.opts.TTL
	if lacksCredentials(err) {
		most = max(most, maxRotation)
	}
	return now-a.failing < most
}

// lacksCredentials reports whether a request has failed because the store has refused its credentials, or because none
// were found.
func lacksCredentials(err error) bool {
	return errors.Is(err, store.ErrCredentials) || errors.Is(err, fault.CredentialsLater)
}

// unendured returns the error of an acquirer that gives up. If the store has failed for lack of valid credentials, the
// error contains how long that has lasted.
func (a *decider) unendured(err error) error {
	if a.failing == 0 || !lacksCredentials(err) {
		return err
	}
	lasted := text.Duration(a.l.opts.Clock.Elapsed() - a.failing)
	return fault.As(store.ErrCredentials, fault.Errorf("no valid credentials for %s, in any request: %w", lasted, err))
}

// afterReturn decides what a lock that is being resumed or reassured does after a look that found conflicting locks. n
// is the number of looks so far, and waited is the time since the first. If the owner of a conflicting lock might be an
// acquirer that is about to withdraw, we give it twice the time that it needs, and look again. Otherwise it holds that
// lock, and ours is lost. A vanished object was deleted meanwhile, so the next look decides. The pauses are short,
// because one of those acquirers can acquire its lock at any moment.
func (l *Locker) afterReturn(t *attempt, f verdict.Findings, n int, waited time.Duration) decision {
	c := t.contender(0)
	holds := func(e *verdict.Entry) bool { return !c.MayWithdraw(f, e) }
	if waited > 2*c.Transience() || slices.ContainsFunc(f.Live, holds) || slices.ContainsFunc(f.Doubtful, holds) {
		return decision{step: giveUp}
	}
	return decision{step: lookAgain, pause: firstAgain << min(n-1, 2)}
}
