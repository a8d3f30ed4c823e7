package replock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// An acquire repeats its work on three levels. This file decides on all of them:
//
//   - after a look, whether to look again under the same flag: afterLook, afterClaim;
//   - after a try, whether to start another one, at once or from the queue: afterTry;
//   - after a poll in the queue, whether to go on waiting: afterPoll.
//
// On the level below, repeat sends one request again until its budget is used up. A
// backend's own client can also send it again, within the same budget. Neither counts here.
const (
	// maxTries is the number of tries in a row that can end too late. A machine that was
	// suspended once succeeds at the next try; a third failure is no chance any more.
	maxTries = 3
	// maxSlow is maxTries for a store that is too slow for the ttl. Its quickest answers
	// count, so a second try that measures the same settles it.
	maxSlow = 2
	// maxAgain is the number of times that an acquirer looks again at an object that was listed
	// and then was not there.
	maxAgain = 3
	// maxConflicts is the number of times that an exclusive acquirer looks again at live locks
	// that can be about to withdraw. Their acquirers need up to seven round trips: they put a
	// flag, claim, look, read a body, and delete.
	maxConflicts = 4
	// firstAgain is the pause before the first such look. The pauses double.
	firstAgain = 100 * time.Millisecond
	// maxClaimPause bounds the doubling of the pauses between two claims: 6.4 s.
	maxClaimPause = 6
)

// step is what an acquirer does next.
type step int

const (
	goOn       step = iota // take the next step of the protocol
	lookAgain              // look again under the same flag
	stepBack               // take lock.exclusive down, then look again
	startAgain             // start another try at once
	queueUp                // wait in the queue, then start another try
	giveUp                 // return the error
)

// decision is a step, after a pause that is still to be jittered.
type decision struct {
	step  step
	pause time.Duration
	err   error // of giveUp
}

// again counts what one acquire has tried, and decides what it does next.
type again struct {
	l       *Locker
	late    int           // tries in a row that ended too late
	failing time.Duration // since when the store has failed, or 0
	try     tryCounts     // of the present try
}

type tryCounts struct {
	claims    int           // of lock.exclusive
	vanished  int           // looks that found an object gone when its body was read
	conflicts int           // looks that found live locks
	since     time.Duration // when the first of these was sent
	until     time.Duration // when it gives way, at the latest
}

// afterLook decides on the findings of a look. It never lets an acquirer in: goOn means only
// that no finding keeps it out.
func (a *again) afterLook(t *try, f findings, err error) decision {
	switch {
	case err != nil:
		return decision{step: giveUp, err: fault.While("looking for other locks", err)}
	case a.l.opts.Clock.Elapsed() >= t.deadline:
		return decision{step: giveUp, err: t.late()}
	case len(f.live) > 0:
		return a.afterConflict(t, f)
	case len(f.vanished) > 0:
		if a.try.vanished == maxAgain {
			return decision{step: giveUp, err: ErrHeld}
		}
		a.try.vanished++
		return decision{step: lookAgain, pause: firstAgain}
	case len(f.doubtful) > 0:
		return decision{step: giveUp, err: errDoubt}
	default:
		return decision{step: goOn}
	}
}

// afterConflict decides whether this acquirer yields to the live locks in its way, or can
// expect that they yield.
func (a *again) afterConflict(t *try, f findings) decision {
	n := &a.try
	if n.conflicts == 0 {
		n.since = f.now
	}
	n.conflicts++
	if f.now < n.until && a.l.outlasts(t, f, f.now-n.since) {
		return decision{step: lookAgain, pause: firstAgain << min(n.conflicts-1, 2)}
	}
	if t.mode == Shared || n.conflicts > maxConflicts || !a.l.worthAnother(t, f) {
		return decision{step: giveUp, err: ErrHeld}
	}
	// The others look, and take down what they have put. A pause of a round trip before
	// each of our looks leaves them eight round trips.
	d := decision{step: lookAgain, pause: firstAgain<<min(n.conflicts-1, 1) + t.trips.slowest()}
	if slices.ContainsFunc(f.live, func(e *entry) bool { return e.kind == kindShared }) {
		d.step = stepBack
	}
	return d
}

// afterClaim follows each claim with a look. A second claim means that another acquirer was
// faster, or that our lock.exclusive was removed: from then on it pauses.
func (a *again) afterClaim() decision {
	a.try.claims++
	if a.try.claims == 1 {
		return decision{step: lookAgain}
	}
	return decision{step: lookAgain, pause: firstAgain << min(a.try.claims-2, maxClaimPause)}
}

// afterTry decides on the error of a try that was withdrawn. waits reports whether the
// acquirer is in the queue, with time left.
func (a *again) afterTry(t *try, err error, waits bool) decision {
	switch {
	case errors.Is(err, ErrHeld), errors.Is(err, errDoubt):
		a.late, a.failing = 0, 0
		return decision{step: queueUp}
	case errors.Is(err, errLate), errors.Is(err, ErrSlow), errors.Is(err, errUnlisted), t.flag.maybe && a.l.opts.Clock.Elapsed() >= t.deadline:
		a.late++
		if a.late == maxTries || a.late == maxSlow && errors.Is(err, ErrSlow) {
			return decision{step: giveUp, err: fault.While(fmt.Sprintf("acquiring the %s lock", t.mode), err)}
		}
		return decision{step: startAgain}
	case a.endures(err, waits):
		return decision{step: queueUp}
	default:
		return decision{step: giveUp, err: err}
	}
}

// afterPoll decides on a poll of the queue. It is startAgain when the way seems to be free, or
// when the ticket is gone.
func (a *again) afterPoll(t *try, f findings, err error, waits bool) decision {
	switch {
	case errors.Is(err, errUnlisted), err == nil && len(f.live)+len(f.doubtful) == 0:
		return decision{step: startAgain}
	case err == nil:
		a.failing = 0
		return decision{step: queueUp}
	case a.endures(err, waits):
		return decision{step: queueUp}
	default:
		return decision{step: giveUp, err: fault.While(fmt.Sprintf("waiting for the %s lock", t.mode), err)}
	}
}

// endures notes a failure of the store, and reports whether a waiting acquirer goes on: until
// the store has failed for a ttl, or has refused a request for good.
func (a *again) endures(err error, waits bool) bool {
	if !waits || store.Permanent(err) || errors.Is(err, ErrFence) {
		return false
	}
	now := a.l.opts.Clock.Elapsed()
	if a.failing == 0 {
		a.failing = now
	}
	return now-a.failing < a.l.opts.TTL
}

// afterReturn decides on a look of a resumed or reassured lock that found others in its way, the
// n-th in a row, waited after the first. Only acquirers that can be about to withdraw get more time,
// and twice as much as they need; a holder has passed this lock. A vanished object was deleted
// meanwhile. The pauses are short, since one of those acquirers can be let in.
func (l *Locker) afterReturn(t *try, f findings, n int, waited time.Duration) decision {
	passed := func(e *entry) bool { return !l.mayWithdraw(t, f, e) }
	if waited > 2*l.transience(t) || slices.ContainsFunc(f.live, passed) || slices.ContainsFunc(f.doubtful, passed) {
		return decision{step: giveUp}
	}
	return decision{step: lookAgain, pause: firstAgain << min(n-1, 2)}
}
