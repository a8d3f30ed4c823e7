package replock

import "time"

// The first poll comes after 1 to 2 s. While the same locks conflict, the pauses grow up to 5 to 10 s.
const (
	firstPoll = time.Second
	lastPoll  = 5 * time.Second
	// morePoll is added to the longest pause between two polls for each waiter before this one.
	morePoll = 200 * time.Millisecond
)

// pace is how often a waiter reads the blocker, the conflicting lock that it watches. The pause is a share of the time
// for which the same locks have conflicted, within bounds. The longer a lock was held, the less likely it is released
// within the next second, and the less a delay matters. The zero value means never.
type pace struct {
	share       float64
	first, last time.Duration
}

// ownPace adds about a hundredth to a wait of over 25 s. docs/evidence/benchmarks.md compares it with other paces.
var ownPace = pace{share: .01, first: 250 * time.Millisecond, last: 5 * time.Second}

func (p pace) after(waited time.Duration) time.Duration {
	return min(max(time.Duration(p.share*float64(waited)), p.first), p.last)
}

// For quickFor after the conflicting locks have changed, a waiter reads once in beatTrips round trips, but pauses for
// leastBeat at least. So a lock that is held briefly is handed over soon on a quick store.
const (
	quickFor  = 3 * time.Second
	beatTrips = 20
	leastBeat = 50 * time.Millisecond
)

// A waiter pauses for one lineShare-th of the time since the last change at most, or for lineTrips round trips times its
// place in the line, if that is longer. With the jitter a pause is up to three quarters of that time. The blocker's turn
// is half-way to the waiter's own. So if the line moves evenly, the waiter notices before its own turn that the blocker is
// gone.
const (
	lineTrips = 2
	lineShare = 2
)

const (
	hintBurst = 200
	hintRate  = 1
)

// budget limits a waiter's reads: hintBurst at once, and hintRate per second. A wait for one lock stays within it: after
// 100 s it has spent about 187 of hintBurst, 48 of them in quickFor, and from then on it reads less often than hintRate.
type budget struct {
	spent float64
	at    time.Duration // when spent was updated
}

// take spends one read, and returns how long the caller must wait before it.
func (b *budget) take(now time.Duration) time.Duration {
	b.spent = max(b.spent-(now-b.at).Seconds()*hintRate, 0) + 1
	b.at = now
	return time.Duration(max(b.spent-hintBurst, 0) / hintRate * float64(time.Second))
}
