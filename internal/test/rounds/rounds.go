// Package rounds decides how often a test repeats.
//
// A test that tries things with other numbers (clocks that are wrong in different ways, a wait
// of three hours in simulated time, a thousand starts) has two counts. It makes all of its
// rounds in the long suite. The short suite and the race detector, which makes a test some ten
// times slower, make a few: each rule is still tried, with fewer numbers.
package rounds

import "testing"

// Fewer returns few with -short or under the race detector, or else all.
func Fewer[T any](all, few T) T {
	if underRace || testing.Short() {
		return few
	}
	return all
}

// Long skips the test with -short. The reason names what takes so long.
func Long(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left to the long suite: " + reason)
	}
}
