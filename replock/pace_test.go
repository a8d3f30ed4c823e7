package replock

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store/mem"
)

// roundTrip is that of the simulated stores below.
const roundTrip = 40 * time.Millisecond

// paced is a machine with a pace, far from its store, whose random numbers are always the same.
func (w *world) paced(p pace, seed uint64) *machine {
	m := w.machine(func(o *Options) { o.Rand = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}) })
	m.pace = p
	m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(roundTrip); return nil })
	return m
}

// holds are n times for which a lock is held, from a second to an hour, one in each nth of that range
// on a logarithmic scale: as many from 1 to 2 s as from half an hour to an hour.
func holds(n int) (all []time.Duration) {
	for i := range n {
		all = append(all, time.Duration(math.Pow(3600, (float64(i)+.5)/float64(n))*float64(time.Second)))
	}
	return all
}

// handOver returns the delays between the end of a release and the time when the waiter holds the
// lock, one for each time for which the lock is held, and the waiter's requests per hour of waiting.
func handOver(t *testing.T, p pace, mode Mode, holds []time.Duration) (delays []time.Duration, perHour float64) {
	requests, waited := 0, time.Duration(0)
	for i, hold := range holds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			k, err := w.paced(pace{}, uint64(i)).Exclusive(t.Context(), "x")
			mustLock(t, k, err)
			time.Sleep(5 * time.Second)
			b := w.paced(p, uint64(i)+1)
			wait := b.wants(t, mode, Forever)
			time.Sleep(hold)
			k.Release(t.Context())
			released := time.Now()
			lock := wait.got(t)
			delays = append(delays, time.Since(released))
			sent, _ := b.hooks.Count()
			requests, waited = requests+sent, waited+wait.took
			lock.Release(t.Context())
		})
	}
	return delays, float64(requests) / waited.Hours()
}

// quantiles returns the median and the 90th percentile.
func quantiles(d []time.Duration) (median, p90 time.Duration) {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2], d[len(d)*9/10]
}

// paces makes TestHandOver measure other paces, too: go test -run TestHandOver -v ./replock -paces
var paces = flag.Bool("paces", false, "measure the hand-over at other paces, too")

// TestHandOver: a waiter gets a lock a hundredth and a half of its wait after the release, at the
// latest, or less than half a second, and eight round trips. It sends no more than a request per
// second. docs/benchmarks.md has the table that -paces prints.
func TestHandOver(t *testing.T) {
	n := rounds.Fewer(20, 10)
	if *paces {
		n = 100
	}
	all := holds(n)
	for _, mode := range []Mode{Shared, Exclusive} {
		delays, perHour := handOver(t, ownPace, mode, all)
		for i, d := range delays {
			if most := ownPace.after(all[i])*3/2 + 8*roundTrip; d > most {
				t.Errorf("%s: let in %v after the release, and %v after it came, want %v", mode, d, all[i], most)
			}
		}
		if perHour > 3600 {
			t.Errorf("%s: %.0f requests per hour", mode, perHour)
		}
		logPace(t, ownPace, mode, delays, perHour)
	}
	if !*paces {
		return
	}
	every := func(d time.Duration) pace { return pace{1, d, d} }
	for _, p := range []pace{
		{}, every(5 * time.Second), every(2 * time.Second), every(time.Second), every(time.Second / 2), every(time.Second / 4),
		{.04, ownPace.first, ownPace.last}, {.02, ownPace.first, ownPace.last}, {.005, ownPace.first, ownPace.last},
	} {
		delays, perHour := handOver(t, p, Exclusive, all)
		logPace(t, p, Exclusive, delays, perHour)
	}
}

func logPace(t *testing.T, p pace, mode Mode, delays []time.Duration, perHour float64) {
	median, p90 := quantiles(delays)
	t.Logf("%g of the wait, from %v to %v, %s: median %.2f s, p90 %.2f s, %.0f requests per hour", p.share, p.first, p.last, mode, median.Seconds(), p90.Seconds(), perHour)
}

// TestWaitersPerHour counts the requests of 1, 10 and 100 waiters in an hour's wait.
// docs/benchmarks.md has the table that it prints.
func TestWaitersPerHour(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for _, n := range []int{1, 10, rounds.Fewer(100, 20)} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				k, err := w.machine().Exclusive(t.Context(), "x")
				mustLock(t, k, err)
				time.Sleep(10 * time.Second)
				var waiters []*machine
				var waits []*pendingAcquire
				for i := range n {
					m := w.paced(ownPace, uint64(i))
					waiters, waits = append(waiters, m), append(waits, m.wants(t, mode, Forever))
				}
				time.Sleep(time.Hour)
				sum, most := map[string]int{}, 0
				for _, m := range waiters {
					all, by := m.hooks.Count()
					most = max(most, all)
					for op, n := range by {
						sum[op] += n
					}
				}
				t.Logf("| %d %s | %d | %d | %d |", n, mode, sum["get"], sum["list"], sum["put"])
				if most > 3600+hintBurst {
					t.Errorf("%d %s: one of them sent %d requests in an hour", n, mode, most)
				}
				for _, p := range waits {
					p.cancel(nil)
					<-p.done
				}
				k.Release(t.Context())
			})
		}
	}
}
