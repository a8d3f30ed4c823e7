package clock

import "time"

// bubbleStart is an hour before the time at which each bubble of testing/synctest starts, so that no
// time on its clock is 0.
var (
	bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour)
	bubbleEnd   = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Elapsed reads the clock since boot, which counts suspend. A bubble's time never reaches that
// clock: there Elapsed is the bubble's time since its start.
func (System) Elapsed() time.Duration {
	if now := time.Now(); InBubble(now) {
		return now.Sub(bubbleStart)
	}
	return sinceBoot()
}

// InBubble reports whether time.Now has returned this time in a bubble. It is a variable so that a
// test can run real processes in one, which read the clock since boot.
var InBubble = ofBubble

// ofBubble reports whether time.Now has returned this time in a bubble. There it has no monotonic
// reading, and everywhere else it has one, unless the wall clock is before 1885 or after 2157: then
// Time has no room for it. Such a machine must not be taken for a bubble, because its wall clock can be
// set. If a later Go has another rule, TestSystemInABubble fails, and Elapsed is the clock since boot.
func ofBubble(now time.Time) bool {
	return now == now.Round(0) && now.After(bubbleStart) && now.Before(bubbleEnd)
}
