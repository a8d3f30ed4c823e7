package torture

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestPlan: plans have each fault about as often as its chance says, and no other.
func TestPlan(t *testing.T) {
	const ttl, n = 10 * time.Second, 10000
	for name, test := range map[string]struct {
		chances                                  Chances
		behind                                   bool
		exclusive, kill, stop, term, long, brief int // at least; 0: never
		waits                                    int // of each mode, in a hundred
	}{
		"as usual":    {UsualChances, false, 1300, 180, 180, 270, 200, 50, 25},
		"behind":      {UsualChances, true, 5500, 180, 180, 270, 200, 50, 25},
		"stops alone": {Chances{Stop: 0.3}, true, 0, 0, 2700, 0, 1800, 900, 0},
		"kills alone": {Chances{Exclusive: 1, Kill: 0.3}, false, n, 2700, 0, 0, 0, 0, 0},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		got := map[any]int{}
		for range n {
			p := newPlan(r, "x", "d/", ttl, test.chances, test.behind)
			got[p.Mode]++
			got[p.fault]++
			if p.Hold > shortHold {
				got["long"]++
			}
			assert.Need(t, p.stopFor >= ttl*55/60, "%+v", p)
			if p.Wait > 0 {
				got[string(p.Mode)+" waits"]++
				assert.Need(t, p.Wait >= 2*ttl, "%+v", p)
			}
			if p.inChild {
				got["fault of a waiter's child"]++
			}
			if p.fault == stop && p.stopFor <= ttl && p.Hold > p.stopFor {
				got["brief"]++
			}
		}
		for what, least := range map[any]int{judge.Exclusive: test.exclusive, kill: test.kill, stop: test.stop, term: test.term, "long": test.long, "brief": test.brief} {
			most := 2 * least // of 0: 0
			assert.That(t, got[what] >= least && (least == n || got[what] <= most), "%s: %v %d times of %d, want %d", name, what, got[what], n, least)
		}
		for _, mode := range []judge.Mode{judge.Shared, judge.Exclusive} {
			waits := got[string(mode)+" waits"]
			assert.That(t, waits*100 >= got[mode]*test.waits && waits*50 <= got[mode]*test.waits, "%s: %d of %d %s attempts wait", name, waits, got[mode], mode)
		}
		inChild := got["fault of a waiter's child"]
		assert.That(t, inChild*300 >= n*test.waits && inChild*100 <= n*test.waits, "%s: %d of %d faults count from the child's start", name, inChild, n)
	}
}

// TestWaiters: at most a third of the clients wait, so that others are refused, and at least one can.
func TestWaiters(t *testing.T) {
	for clients, most := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 6: 2, 64: 22, 100: 34} {
		r := &run{opts: Options{Clients: make([]func(Work) []string, clients), Chances: UsualChances}}
		n := 0
		for c, _ := r.chancesNow(); c.Wait > 0; c, _ = r.chancesNow() {
			r.waits(plan{}, 1)
			r.waits(plan{Work: Work{Wait: time.Second}}, 1)
			n++
		}
		assert.Equal(t, n, most, "%d clients", clients)
		r.waits(plan{Work: Work{Wait: time.Second}}, -1)
		c, _ := r.chancesNow()
		assert.Equal(t, c, UsualChances, "%d clients, one of whose waiters has ended", clients)
	}
}

// TestCommand: the client of a plan that waits waits, with the lock and never without one.
func TestCommand(t *testing.T) {
	w := Work{ID: "c1-1", Mode: judge.Exclusive, Data: "d/", Hold: time.Second}
	r := Repolock{Program: "repolock", Locks: "a", Data: "b", Name: "n", TTL: 10 * time.Second}
	work := []string{"repolock", "--repo", "b", "torture-child", "--id", "c1-1", "--mode", "exclusive", "--data", "d/", "--hold", "1s"}
	lock := []string{"repolock", "--repo", "a", "--name", "n", "run", "--exclusive", "--operation", "prune", "--ttl", "10s", "--resume-for", "15s"}
	assert.Equal(t, r.Command(w), slices.Concat(lock, []string{"--"}, work))
	w.Wait = 30 * time.Second
	assert.Equal(t, r.Command(w), slices.Concat(lock, []string{"--wait", "30s", "--"}, work))
	r.NoLock = true
	assert.Equal(t, r.Command(w), slices.Concat([]string{"repolock", "run", "--no-lock", "--"}, work))
}

// TestLeft: a fault that was inflicted more often than its chance says is left out.
func TestLeft(t *testing.T) {
	all := Chances{Kill: 0.1, Stop: 0.2, Term: 0.3}
	assert.Equal(t, all.left(Counts{Shared: 5, Exclusive: 5, Killed: 1, Stopped: 2, Terminated: 3}), all)
	assert.Equal(t, all.left(Counts{Shared: 5, Exclusive: 5, Killed: 2, Stopped: 3, Terminated: 4}), Chances{})
}
