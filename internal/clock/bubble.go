package clock

import "time"

// The time in a bubble of testing/synctest begins with the year 2000. bubbleStart is an hour earlier, so
// that Elapsed is never 0 in a bubble.
var (
	bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour)
	bubbleEnd   = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Elapsed reads the clock since boot, which counts suspend. In a bubble it returns the time since
// bubbleStart, because synctest doesn't simulate the clock since boot.
func (System) Elapsed() time.Duration {
	if now := time.Now(); InBubble(now) {
		return now.Sub(bubbleStart)
	}
	return sinceBoot()
}

// InBubble reports whether time.Now returned this time in a bubble. It is a variable so that a test
// can run real processes in a bubble: they read the clock since boot.
var InBubble = isBubbleTime

// isBubbleTime recognizes a bubble's time because it has no monotonic reading. Outside of a bubble a time has one,
// unless the wall clock is before 1885 or after 2157: then time.Time can't store it. isBubbleTime must reject
// the time of such a machine: its wall clock can be set, and Elapsed must not follow it. If a later Go gives
// bubbles a monotonic reading, TestSystemInABubble fails, and Elapsed reads the clock since boot.
func isBubbleTime(now time.Time) bool {
	return now == now.Round(0) && now.After(bubbleStart) && now.Before(bubbleEnd)
}
