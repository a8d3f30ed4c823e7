package replock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// referee checks that no holder is in together with an exclusive one.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	in     map[*Lock]bool
	grants map[Mode]int
}

func (r *referee) enter(k *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants[k.Mode()]++
	r.in[k] = true
	for other := range r.in {
		if other != k && alive(other) && alive(k) && (other.Mode() == Exclusive || k.Mode() == Exclusive) {
			r.t.Errorf("%s %s and %s %s are both in", k.Mode(), k.ID(), other.Mode(), other.ID())
		}
	}
}

func (r *referee) leave(k *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.in, k)
}

// contend makes n clients take locks at random for a while, with requests that take random
// times and fail, before or after they are applied.
func contend(t *testing.T, seed uint64, opts mem.Options, n int, share, fail float64) *referee {
	r := &referee{t: t, in: map[*Lock]bool{}, grants: map[Mode]int{}}
	w := newWorld(t, opts)
	var wg sync.WaitGroup
	for i := range n {
		m := w.machine(func(o *Options) { o.TTL = MinTTL })
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		var mu sync.Mutex
		chance := func(p float64) bool { mu.Lock(); defer mu.Unlock(); return rng.Float64() < p }
		delay := func(most time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(rng.Int64N(int64(most)))
		}
		m.hooks.Before(func(context.Context, hookstore.Request) error {
			time.Sleep(delay(200 * time.Millisecond))
			if chance(fail / 2) {
				return errOutage
			}
			return nil
		})
		m.hooks.After(func(_ context.Context, _ hookstore.Request, err error) error {
			time.Sleep(delay(200 * time.Millisecond))
			if chance(fail / 2) {
				return errOutage
			}
			return err
		})
		wg.Go(func() {
			for range 20 {
				mode := Exclusive
				if chance(share) {
					mode = Shared
				}
				k, err := m.acquire(t.Context(), mode, "x")
				if err != nil {
					time.Sleep(delay(3 * time.Second))
					continue
				}
				r.enter(k)
				select {
				case <-k.Context().Done():
				case <-time.After(delay(20 * time.Second)):
				}
				r.leave(k)
				k.Release(t.Context())
				time.Sleep(delay(time.Second))
			}
		})
	}
	wg.Wait()
	time.Sleep(2 * time.Minute)
	return r
}

func TestContention(t *testing.T) {
	for name, opts := range map[string]mem.Options{
		"kept": {}, "lacked": lacking, "claimed": {IfAbsent: mem.Claimed, IfMatch: mem.Claimed},
		"ignored": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored}, "second": {Precision: time.Second, NoTime: true},
	} {
		for _, fail := range []float64{0, 0.1, 0.4} {
			t.Run(fmt.Sprintf("%s, %v fail", name, fail), func(t *testing.T) {
				grants := map[Mode]int{}
				for seed := range uint64(5) {
					synctest.Test(t, func(t *testing.T) {
						// With more shared ones, no exclusive acquirer that doesn't wait is
						// sure to get in.
						r := contend(t, seed, opts, 5, 0.25, fail)
						grants[Shared] += r.grants[Shared]
						grants[Exclusive] += r.grants[Exclusive]
					})
				}
				t.Logf("granted %v", grants)
				if grants[Shared] == 0 || grants[Exclusive] == 0 && fail < 0.4 {
					t.Errorf("granted %v", grants)
				}
			})
		}
	}
}

// TestOneOfManyWins: of exclusive acquirers that start at one time, one gets the lock.
func TestOneOfManyWins(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking, "ignored": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored}} {
		t.Run(name, func(t *testing.T) {
			won, rounds := 0, 200
			for seed := range uint64(rounds) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					var wg sync.WaitGroup
					granted := make(chan *Lock, 8)
					for i := range 8 {
						m := w.machine()
						rng := rand.New(rand.NewPCG(seed, uint64(i)))
						var mu sync.Mutex
						m.hooks.Before(func(context.Context, hookstore.Request) error {
							mu.Lock()
							d := time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
							mu.Unlock()
							time.Sleep(d)
							return nil
						})
						wg.Go(func() {
							if k, err := m.Exclusive(t.Context(), "prune"); err == nil {
								granted <- k
							}
						})
					}
					wg.Wait()
					close(granted)
					n := len(granted)
					for k := range granted {
						k.Release(t.Context())
					}
					if n > 1 {
						t.Fatalf("seed %d: %d exclusives are in", seed, n)
					}
					won += n
				})
			}
			t.Logf("one of 8 won in %d of %d rounds", won, rounds)
			if won < rounds*9/10 {
				t.Errorf("one of 8 won in only %d of %d rounds", won, rounds)
			}
		})
	}
}

// TestSharedNeverBlockEachOther: shared acquirers at one time all get in.
func TestSharedNeverBlockEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		var wg sync.WaitGroup
		for range 50 {
			m := w.machine()
			wg.Go(func() {
				k, err := m.Shared(t.Context(), "backup")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Minute)
				k.Release(t.Context())
			})
		}
		wg.Wait()
	})
}

// TestAcquireAfterItsDeadline: an acquire whose look took longer than its lease fails in that
// attempt, leaves nothing, and starts again.
func TestAcquireAfterItsDeadline(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			a := w.machine()
			var once atomic.Bool
			a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
				if r.Op == "list" && once.CompareAndSwap(false, true) {
					a.clock.jump(2 * time.Minute) // the process was stopped meanwhile
				}
				return err
			})
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			if left := k.Deadline() - a.clock.Elapsed(); left < 50*time.Second {
				t.Errorf("acquired with a lease of which %v is left", left)
			}
			if n := len(w.keys()); n != int(mode) { // one flag, and lock.exclusive
				t.Errorf("%d objects: %v", n, w.keys())
			}
			k.Release(t.Context())
		})
	}
}
