package verdict

import (
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock/internal/wire"
)

// Verdict is how a process that doesn't own a lock judges it: replock.Verdict explains each value.
type Verdict int

// The verdicts.
const (
	Live Verdict = iota + 1
	Stale
	Doubtful
	Unreadable
	Released
)

// Margin is added to a lease's end on the store's clock, because S3 truncates mod times to seconds, and the clocks of a
// store's gateways differ a little.
const Margin = 2 * time.Second

// StoreTime is a lower bound of the store's clock. The zero value means that it is unknown.
type StoreTime struct {
	At      time.Time     // on the store's clock
	Elapsed time.Duration // Clock.Elapsed, at the same moment or later
}

// When returns a lower bound of the store's clock at the given time on our clock.
func (s StoreTime) When(elapsed time.Duration) time.Time { return s.At.Add(elapsed - s.Elapsed) }

// Known reports whether the store's time is known.
func (s StoreTime) Known() bool { return !s.At.IsZero() }

// Judge sets the verdict of an entry whose body was read: docs/evidence/protocol.md, "Live, stale, unreadable". now is
// when we sent the last request that showed the entry unchanged. In doubt a lock is held.
func (j Judge) Judge(e *Entry, st StoreTime, now time.Duration) {
	e.Verdict, e.Why = j.verdict(e, st, now)
}

func (j Judge) verdict(e *Entry, st StoreTime, now time.Duration) (Verdict, string) {
	ttl := e.TTL()
	switch {
	case errors.Is(e.Err, wire.ErrEmptied):
		return Released, ""
	case e.Err != nil && !errors.Is(e.Err, wire.ErrEncrypted):
		return Unreadable, e.Err.Error()
	}

	// We have watched it for a whole ttl of our own time. The holder sent its last refresh before we first saw it, so
	// its deadline is over, and no later refresh was answered.
	if now-e.Since >= ttl {
		return Stale, ""
	}

	if e.Changed { // it was refreshed while it was watched
		return Live, ""
	}
	// There are two witnesses: the store's clock, and a clock of this machine.
	known := j.StoreClock && st.Known() && !e.ModTime.IsZero()
	if known && !st.When(now).After(e.ModTime.Add(ttl+Margin)) {
		return Live, ""
	}
	if known && j.oneClock(e) {
		if j.Self.BootID == "" && j.longDead(e, st, now) {
			return Stale, ""
		}
		return Doubtful, "this machine's clock says that it has expired, and no other clock confirms that"
	}
	expired, clock := j.expired(e, ttl, now)
	if e.Err != nil || j.misdated(e, st, now) {
		expired = j.longDead(e, st, now)
	}
	switch {
	case known && expired:
		return Stale, ""
	case known:
		return Doubtful, "the store's clock says that it has expired, and " + clock + " doesn't"
	case e.Err != nil:
		return Doubtful, "its body is encrypted, and the store has no clock of its own"
	case expired:
		return Doubtful, clock + " says that it has expired, and the store has no clock of its own to confirm it"
	default:
		return Live, ""
	}
}

// oneClock reports whether one clock has stamped both dates of an entry. On a local disk the wall clock stamps the mod
// times, so a step of it changes both witnesses. If this process and the holder share a clock since boot, that clock is
// a second witness. So is a reboot of the holder's machine, because the holder hasn't survived it. But the machine must
// be this one: a disk can also be served to other machines, whose holders survive a reboot of this machine.
func (j Judge) oneClock(e *Entry) bool {
	return j.MachineClock && !j.sharesBoot(e) && !j.Self.Rebooted(e.Lease.Process)
}

// sharesBoot reports whether this process and the holder of an entry share a clock since boot, which can't be set.
func (j Judge) sharesBoot(e *Entry) bool {
	return e.Lease.RefreshedBoot > 0 && j.Self.SameBoot(e.Lease.Process)
}

// expired reports whether the second witness considers a lock expired, and returns the name of the witness.
func (j Judge) expired(e *Entry, ttl, now time.Duration) (expired bool, clock string) {
	if e.Err != nil {
		return false, "its body, which is encrypted,"
	}
	if sinceBoot := time.Duration(e.Lease.RefreshedBoot); j.sharesBoot(e) {
		return now-sinceBoot > ttl, "the time since boot"
	}
	wall := j.Wall()
	return wall.After(e.Lease.Refreshed.Add(ttl)), fmt.Sprintf("this machine's clock (%s)", wall.UTC().Format(time.RFC3339))
}

// longDead is longer than any difference between two time zones: UTC-12 and UTC+14 are 26 h apart.
const longDead = 27 * time.Hour

// longDead reports whether an entry is older than longDead by the store's clock and by this machine's. Both clocks are
// compared with the store's mod time, so they aren't independent witnesses. They count only for an age that no wrong
// clock explains.
func (j Judge) longDead(e *Entry, st StoreTime, now time.Duration) bool {
	dead := e.ModTime.Add(longDead)
	return st.When(now).After(dead) && j.Wall().After(dead)
}

// misdated reports whether the wall clock that dated a body was certainly wrong, so that the body's date is no witness:
// the date is later than the store's time and this machine's by more than longDead. A date in the past must stay a
// witness. If a store that had booted in 1970 was set right, only that date shows that a live lock isn't long dead. It
// must also stay one if it is a little ahead, because a holder's clock often is.
func (j Judge) misdated(e *Entry, st StoreTime, now time.Duration) bool {
	wrong := e.Lease.Refreshed.Add(-longDead)
	return !j.sharesBoot(e) && wrong.After(st.When(now)) && wrong.After(j.Wall())
}

// EndOf returns when all live locks of a look are stale if none is refreshed, by Clock.Elapsed. It returns 0 if the
// body of one of them can't be read.
func (j Judge) EndOf(f Findings) (end time.Duration) {
	for _, e := range f.Live {
		if e.Verdict != Live || e.Err != nil {
			return 0
		}
		at := e.Since + e.TTL()
		if age, _ := e.Age(f.St, f.Now); !e.Changed && j.StoreClock {
			at = min(at, f.Now+e.TTL()+Margin-age+time.Millisecond)
		}
		end = max(end, at)
	}
	return end
}

// Judge judges the locks of others by the clocks that it can compare.
type Judge struct {
	Self identity.Process // this process
	// Wall returns the time of this machine's wall clock.
	Wall func() time.Time
	// StoreClock and MachineClock are fields of store.Properties.
	StoreClock, MachineClock bool
}
