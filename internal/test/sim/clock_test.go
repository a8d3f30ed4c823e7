package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// TestNamesOfFunctionsDrawNothing: a wait lasts as long if another function of the package
// begins it, so a function can be renamed or split without other histories.
func TestNamesOfFunctionsDrawNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clientClock{machine: &machine{booted: time.Now()}, dice: 1}
		sleep := func(c clock.Clock) { _ = clock.Sleep(t.Context(), c, time.Millisecond) }
		ends := make(chan time.Time, 3)
		for _, wait := range []func(clock.Clock){oneWaits, anotherWaits, sleep} {
			go func() {
				wait(c)
				ends <- time.Now()
			}()
		}
		first, second, third := <-ends, <-ends, <-ends
		if !first.Equal(second) || !first.Equal(third) {
			t.Errorf("the waits end at %v, %v and %v", first, second, third)
		}
	})
}

func oneWaits(c clock.Clock) { <-c.After(time.Millisecond) }

func anotherWaits(c clock.Clock) { func() { oneWaits(c) }() }

// TestPackagesAreToldApart: the refresher and the watch of a lock wait at one time.
func TestPackagesAreToldApart(t *testing.T) {
	for function, want := range map[string]string{
		"github.com/repolock/repolock/replock.(*Lock).watch":           "replock",
		"github.com/repolock/repolock/internal/refresh.(*run).drain":   "refresh",
		"github.com/repolock/repolock/internal/retry.Do[...]":          "retry",
		"github.com/repolock/repolock/replock.(*Locker).raise.func1.2": "replock",
		"main.main": "main",
	} {
		if got := packageOf(function); got != want {
			t.Errorf("%s is of %q, not %q", function, got, want)
		}
	}
}
