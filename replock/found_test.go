package replock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/tap"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// What follows are bugs that were found in this package, each with the
// interleaving that showed it.

// TestFoundResumePassedMeanwhile: passed, in and out again while a resume is under way.
func TestFoundResumePassedMeanwhile(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "backup")
		mustLock(t, k, err)
		a.lose(t, k)
		time.Sleep(10 * time.Second)
		// b has looked, and is about to delete the stale flag.
		came, gate := make(chan struct{}), make(chan struct{})
		var first atomic.Bool
		b.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "delete" && r.Key == k.Key() && first.CompareAndSwap(false, true) {
				close(came)
				<-gate
			}
			return nil
		})
		var in bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			other, err := b.Exclusive(context.Background(), "prune")
			if err != nil {
				t.Logf("b: %v", err)
				return
			}
			in = true
			time.Sleep(300 * time.Millisecond) // a short prune
			other.Release(context.Background())
		}()
		<-came
		var looks atomic.Int64
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "list" && r.Key == "index/lock." && looks.Add(1) == 1 {
				close(gate)
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := k.Resume(ctx)
		select {
		case <-gate:
		default:
			close(gate)
		}
		<-done
		t.Logf("in between: %v; resumed: %v, %v", in, r != nil, err)
		if in && r != nil {
			t.Error("resumed although a prune has been in between")
		}
		if r != nil {
			r.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// TestFoundResumeTwice: two Resumes at once.
func TestFoundResumeTwice(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.tap.Before(takesASecond)
		var rs [2]*Lock
		var wg sync.WaitGroup
		for i := range rs {
			wg.Go(func() {
				rs[i], _ = k.Resume(context.Background())
			})
		}
		wg.Wait()
		if rs[0] != nil && rs[1] != nil {
			t.Errorf("one lost %s lock was resumed as two: alive %v %v", mode, alive(rs[0]), alive(rs[1]))
		}
		for _, r := range rs {
			if r != nil {
				r.Release(context.Background())
			}
		}
		k.Release(context.Background())
	})
}

// TestFoundBlockedObserver: an observer or logger that blocks.
func TestFoundBlockedObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		stuck := make(chan struct{})
		a := w.machine(func(o *Options) {
			o.Observe = func(e Event) {
				if e.Kind == EventRefreshFailed {
					<-stuck
				}
			}
		})
		b := w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		a.tap.Before(outage)
		time.Sleep(65 * time.Second)
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err)
		if alive(k) {
			t.Error("both in: the context outlives its deadline while the logger blocks")
		}
		close(stuck)
		other.Release(t.Context())
		a.tap.Before(nil)
		k.Release(t.Context())
	})
}

// TestFoundRefusedDeletesForeignExclusive: a refused acquirer deletes another client's live lock.exclusive.
func TestFoundRefusedDeletesForeignExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		c, a, b := w.originals(), w.machine(), w.ours()
		came, gate := c.pause("put", "lock.exclusive")
		var x held
		cdone := make(chan struct{})
		go func() { defer close(cdone); x, _ = c.lock(context.Background(), Exclusive) }()
		<-came // it has looked
		looked := make(chan struct{})
		var first atomic.Bool
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "list" && first.CompareAndSwap(false, true) {
				close(gate) // it writes, and verifies
				<-cdone
				close(looked)
			}
			return nil
		})
		k, err := a.Exclusive(t.Context(), "prune")
		mustHeld(t, k, err)
		<-looked
		if x == nil {
			t.Fatal("the other client isn't in")
		}
		if keys := w.keys(); len(keys) != 1 {
			t.Errorf("a refused acquirer left %v of the other's lock.exclusive", keys)
		}
		s, _ := b.lock(t.Context(), Shared)
		if both(x, s) {
			t.Error("both in")
		}
		end(x, s)
	})
}

// TestFoundProveRevives: prove puts unconditionally after the right ETag was refused.
func TestFoundProveRevives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed})
		a, b := w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		var other *Lock
		a.tap.Before(func(ctx context.Context, r tap.Request) error {
			if r.Op == "put" && r.Opts.IfMatch != "" && r.Opts.IfMatch != wrongETag && other == nil {
				w.mem.Delete(ctx, k.Key()) // break-lock
				other, err = b.Exclusive(context.Background(), "prune")
				if err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		time.Sleep(100 * time.Second)
		if other != nil && alive(other) && alive(k) {
			t.Error("both in: the proof of If-Match put back a broken flag")
		}
		if other != nil {
			other.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// TestFoundBreakKeys: Break with Keys breaks what wasn't shown.
func TestFoundBreakKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b, m := w.machine(), w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		infos, err := m.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k.Release(t.Context())
		other, err := b.Exclusive(t.Context(), "another prune")
		mustLock(t, other, err)
		broken, err := m.Break(t.Context(), BreakOptions{Shown: []Broken{{Info: infos[0]}}})
		if len(broken) > 0 {
			t.Errorf("broke %v, which wasn't shown; %v", broken[0].Info, err)
		}
		time.Sleep(time.Minute)
		if !alive(other) {
			t.Errorf("the other's lock is lost: %v", other.Lost())
		}
		other.Release(t.Context())
	})
}

func TestFoundMerge(t *testing.T) {
	out := merge([]Info{
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.exclusive"}, Verdict: Stale},
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.intent/x"}, Verdict: Doubtful, Why: "?"},
	})
	if out[0].Verdict == Stale {
		t.Errorf("stale and doubtful merged to %v: break --stale deletes %v", out[0].Verdict, out[0].Keys)
	}
}

func TestFoundMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		w.flags(500)
		time.Sleep(5 * time.Minute)
		k, err := w.machine().Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(5 * time.Second)
		x, err := w.machine().Exclusive(t.Context(), "prune")
		held := mustHeld(t, x, err)
		if held.More > 0 {
			t.Errorf("one holder, and: %v", err)
		}
		k.Release(t.Context())
	})
}

// TestFoundResumeHarms: a resume overwrites the lock.exclusive of who passed.
func TestFoundResumeHarms(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking, "ignored": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored}} {
		t.Run(name, func(t *testing.T) {
			harmed := 0
			for head := -1500 * time.Millisecond; head <= 1500*time.Millisecond; head += 50 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					a, b := w.machine(), w.machine()
					k, err := a.Exclusive(t.Context(), "x")
					mustLock(t, k, err)
					a.lose(t, k)
					time.Sleep(10 * time.Second)
					r, other := resumeAgainst(t, a, k, b, head)
					time.Sleep(2 * time.Minute)
					if r != nil && other != nil && alive(r) && alive(other) {
						t.Errorf("head %v: both", head)
					}
					if other != nil && !alive(other) {
						harmed++
						t.Logf("head %v: %v", head, other.Lost())
					}
					for _, x := range []*Lock{k, r, other} {
						if x != nil {
							x.Release(t.Context())
						}
					}
				})
			}
			if harmed > 0 {
				t.Errorf("a resume harmed a live holder %d times", harmed)
			}
		})
	}
}

// TestFoundLateOwnPut: a late first put of our own flag makes the store's time no lower bound.
func TestFoundLateOwnPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true, PageSize: 2})
		a, b := w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		a.tap.Before(outage)
		time.Sleep(33500 * time.Millisecond)
		b.clock.setSkew(20 * time.Second)
		// b's first put of its intent gets no answer, and is applied late.
		var n, lists atomic.Int64
		b.tap.Before(func(ctx context.Context, r tap.Request) error {
			switch {
			case r.Op == "put" && strings.Contains(r.Key, "intent") && n.Add(1) == 1:
				go func() {
					time.Sleep(20 * time.Second)
					w.put(r.Key, r.Body)
				}()
				<-ctx.Done()
				return ctx.Err()
			case r.Op == "list" && lists.Add(1) == 1:
				time.Sleep(9900 * time.Millisecond)
			}
			return nil
		})
		other, err := b.Exclusive(t.Context(), "prune")
		t.Logf("%v %v; alive %v", other != nil, err, alive(k))
		if other != nil && alive(k) {
			t.Error("both in")
		}
		if other != nil {
			other.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// TestFoundResumeCancelled: a Resume that was cancelled, or released, leaves lock.exclusive live.
func TestFoundResumeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		a.lose(t, k)
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "list" && r.Key == "index/lock." {
				cancel()
			}
			return nil
		})
		if r, err := k.Resume(ctx); r != nil {
			t.Fatal(err)
		} else {
			t.Logf("resume: %v; is canceled: %v", err, errors.Is(err, context.Canceled))
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		x, err := b.Exclusive(t.Context(), "prune")
		if err != nil {
			t.Errorf("locked out by what a cancelled resume and a release left: %v: %v", w.keys(), err)
		} else {
			x.Release(t.Context())
		}
	})
}

// TestFoundGet404: GET says 404, or gives an empty body, for what LIST shows.
func TestFoundGet404(t *testing.T) {
	for _, first := range []Mode{Shared, Exclusive} {
		for _, second := range []Mode{Shared, Exclusive} {
			if first == Shared && second == Shared {
				continue
			}
			t.Run(first.String()+second.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					a, b := w.machine(), w.machine()
					k, err := a.acquire(t.Context(), first, "x")
					mustLock(t, k, err)
					time.Sleep(time.Second)
					b.tap.After(func(_ context.Context, r tap.Request, err error) error {
						if r.Op == "get" {
							return store.ErrNotFound
						}
						return err
					})
					other, err := b.acquire(t.Context(), second, "y")
					if other != nil && alive(k) {
						t.Error("both in: a GET that says 404 outweighs the LIST")
						other.Release(t.Context())
					} else {
						t.Log(err)
					}
					k.Release(t.Context())
				})
			})
		}
	}
}

// TestFoundOwnFlagGone: prune's own flag gone at the look.
func TestFoundOwnFlagGone(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{})
			a := w.machine()
			a.tap.After(func(ctx context.Context, r tap.Request, err error) error {
				if r.Op == "put" && !strings.Contains(r.Key, "lock.exclusive") {
					w.mem.Delete(ctx, r.Key)
				}
				return err
			})
			k, err := a.acquire(t.Context(), mode, "x")
			if err == nil {
				t.Errorf("%s: acquired, and the flag isn't in the listing: %v", mode, w.keys())
				k.Release(t.Context())
			}
		})
	}
}

// TestFoundSharedDeep: a store without its own time, many shared flags, a stale intent.
func TestFoundSharedDeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		w.flags(1500)
		x := w.machine()
		tr, _ := x.newTry(Exclusive, "prune", nothingYet())
		tr.body.stamp(time.Now(), x.clock.Elapsed(), DefaultTTL)
		w.put(tr.flag.key, tr.body.encode())
		time.Sleep(time.Hour)
		k, err := w.machine().Shared(t.Context(), "backup")
		if err != nil {
			t.Errorf("an hour after the crash: %v", err)
		} else {
			k.Release(t.Context())
		}
	})
}

// TestFoundStoppedReaper: late delete of lock.exclusive by a shared acquirer that was stopped.
func TestFoundStoppedReaper(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking} {
			t.Run(name+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					dead, a, b := w.machine(), w.machine(), w.machine()
					w.put("index/lock.exclusive", foreign(time.Now().Add(-time.Hour), false))
					time.Sleep(5 * time.Minute)
					_ = dead
					var first atomic.Bool
					var other *Lock
					var err error
					a.tap.After(func(_ context.Context, r tap.Request, rerr error) error {
						// Stopped after the body was read, for two minutes; another comes in.
						if r.Op == "get" && first.CompareAndSwap(false, true) {
							a.clock.jump(2 * time.Minute)
							w.skew.Add(int64(2 * time.Minute))
							b.clock.jump(2 * time.Minute)
							b.clock.setSkew(2 * time.Minute)
							other, err = b.Exclusive(context.Background(), "prune")
							if err != nil {
								t.Error(err)
							}
						}
						return rerr
					})
					k, aerr := a.acquire(t.Context(), mode, "x")
					t.Logf("%v %v", k != nil, aerr)
					if other != nil {
						time.Sleep(time.Minute)
						if !alive(other) {
							t.Errorf("harmed: %v", other.Lost())
						}
						other.Release(t.Context())
					}
				})
			})
		}
	}
}

// claim spins: If-None-Match is refused, and LIST shows nothing.
func TestFoundClaimSpins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		var n int
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			time.Sleep(5 * time.Millisecond)
			if r.Op == "put" && r.Opts.IfAbsent {
				n++
				return store.ErrPrecondition
			}
			return nil
		})
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		if n > 100 {
			t.Errorf("%d puts of lock.exclusive, without a pause", n)
		}
		a.tap.Before(nil)
		mustRelease(t, k)
	})
}

// An empty answer to a GET of what LIST says isn't empty.
func TestFoundGetEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		b.Locker.store = emptyGets{b.tap}
		other, _ := b.Shared(t.Context(), "y")
		if other != nil && alive(k) {
			t.Error("both in: an empty answer counts as a released lock, though LIST gave a size")
			other.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

type emptyGets struct{ store.Store }

func (s emptyGets) Get(ctx context.Context, key string, n int64) ([]byte, store.Object, error) {
	_, o, err := s.Store.Get(ctx, key, n)
	return nil, o, err
}

// How long an acquire, its cancellation and a release take on a dead store.

// The resumed lock's context is that of Resume: with a limit for the resume, it

// ends when that is over.
func TestFoundResumeContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.tap.Before(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r, err := k.Resume(ctx)
		mustLock(t, r, err)
		time.Sleep(11 * time.Minute)
		if !alive(r) {
			t.Errorf("ended by the limit of the resume: %v; lost: %v", context.Cause(r.Context()), r.Lost())
		}
		r.Release(t.Context())
	})
}

// Release of an exclusive lock while the refresh under way finds that it was

// broken and another is in.
func TestFoundReleaseWhileBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		time.Sleep(29 * time.Second)
		b.Break(t.Context(), BreakOptions{})
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err)
		a.tap.Before(func(context.Context, tap.Request) error { time.Sleep(time.Second); return nil })
		time.Sleep(2 * time.Second)
		k.Release(t.Context())
		if len(w.keys()) != 2 {
			t.Errorf("left of the successor's lock: %v (own: %v)", w.keys(), k.Lost())
		}
		other.Release(t.Context())
	})
}

func TestFoundResumeMapRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.tap.Before(nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if r, _ := k.Resume(context.Background()); r != nil {
					r.Release(context.Background())
				}
			})
		}
		wg.Wait()
		k.Release(context.Background())
	})
}

// Release during Resume.
func TestFoundReleaseDuringResume(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		for d := time.Duration(0); d < 9*time.Second; d += 500 * time.Millisecond {
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			a.lose(t, k)
			time.Sleep(10 * time.Second)
			a.tap.Before(takesASecond)
			done := make(chan *Lock)
			go func() {
				r, err := k.Resume(context.Background())
				_ = err
				done <- r
			}()
			time.Sleep(d)
			rerr := k.Release(context.Background())
			r := <-done
			if r != nil {
				if !alive(r) {
					t.Errorf("%v: resumed and dead", d)
				}
				r.Release(context.Background())
			}
			a.tap.Before(nil)
			if x, err := b.Exclusive(t.Context(), "prune"); err != nil {
				t.Errorf("%v: released (%v), resumed %v, and locked out: %v", d, rerr, r != nil, w.keys())
				time.Sleep(3 * time.Minute)
				w.machine().Break(t.Context(), BreakOptions{})
			} else {
				x.Release(t.Context())
			}
		}
	})
}

// A store that tells the time by mod times alone, and has our own flag on a later
// page than a stale lock whose holder's clock is ahead: who doesn't know the
// store's time takes that lock for live until that clock has passed.
func TestFoundOwnFlagOnLaterPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{PageSize: 1, NoTime: true})
		a, b := w.machine(), w.machine()
		a.clock.setSkew(time.Hour)
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		a.lose(t, k)
		start := time.Now()
		b.untilFree(t, time.Second)
		if took := time.Since(start); took > 2*DefaultTTL+5*time.Second {
			t.Errorf("let in only after %v", took)
		}
		a.tap.Before(nil)
		k.Release(t.Context())
	})
}

// A client that may not delete leaves an empty flag behind with each backup, and
// nobody removed them: listings grew without end.
func TestFoundEmptyFlagsPileUp(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		a.tap.Before(mayNotDelete)
		for range 3 {
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err).Release(t.Context())
		}
		k, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, k, err).Release(t.Context())
		w.empty()
	})
}

// break-lock --stale was killed while it learnt the store's time: its probe was
// left, and nothing ever removed it.
func TestFoundProbeIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		a, b, c := w.machine(), w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		b.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "delete" {
				return errOutage
			}
			return nil
		})
		if _, err := b.Break(t.Context(), BreakOptions{Stale: true}); err == nil {
			t.Error("no error")
		}
		k.Release(t.Context())
		other, err := c.Exclusive(t.Context(), "prune")
		mustLock(t, other, err).Release(t.Context())
		w.empty()
	})
}

// Deleting what was emptied took longer than the lease, or cost those who may not
// delete hundreds of requests each time.
func TestFoundSweepIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		a.tap.Before(mayNotDelete)
		for range 300 {
			k, err := a.Shared(t.Context(), "x")
			mustLock(t, k, err).Release(t.Context())
		}
		a.tap.Count()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		if n, by := a.tap.Count(); n > 4 {
			t.Errorf("who may not delete sends %v", by)
		}
		k.Release(t.Context())

		b.tap.Before(func(ctx context.Context, r tap.Request) error {
			if r.Op == "delete" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		start := time.Now()
		k, err = b.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		if took := time.Since(start); took > haste {
			t.Errorf("deletes that hang hold it up for %v", took)
		}
		b.tap.Before(nil)
		k.Release(t.Context())
	})
}

// break-lock --stale took a lock for stale after one listing, because it judged as
// of when it had learnt the store's time, longer than the lock's ttl later.
func TestFoundBreakStaleTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		a := w.machine(func(o *Options) { o.TTL = 10 * time.Second })
		b := w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		time.Sleep(time.Second)
		var deletes atomic.Int32
		b.tap.Before(func(ctx context.Context, r tap.Request) error {
			if r.Op == "delete" && deletes.Add(1) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true})
		if len(broken) > 0 || err != nil {
			t.Errorf("broken: %v, %v", broken, err)
		}
		if err := k.Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		k.Release(t.Context())
	})
}

// break-lock --stale dated the store's time from when its probe was answered,
// although the probe had been stamped later.
func TestFoundProbeAppliedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{NoTime: true})
		a, b := w.machine(), w.machine()
		b.clock.setSkew(time.Hour) // so that one witness is wrong already
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		a.tap.Before(outage)
		time.Sleep(46500 * time.Millisecond)
		var puts, lists atomic.Int32
		b.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" && puts.Add(1) == 1 {
				time.AfterFunc(7900*time.Millisecond, func() { w.put(r.Key, r.Body) })
				return errOutage
			}
			if r.Op == "list" && r.Key != "index/lock." && lists.Add(1) == 1 {
				time.Sleep(7950 * time.Millisecond)
			}
			return nil
		})
		broken, err := b.Break(t.Context(), BreakOptions{Stale: true, DryRun: true})
		if err != nil || !alive(k) {
			t.Fatalf("%v, alive %v", err, alive(k))
		}
		for _, x := range broken {
			t.Errorf("%v after %v", x.Verdict, x.Age)
		}
		a.tap.Before(nil)
		k.Release(t.Context())
	})
}

// Resumed although a prune had been in between: a late refresh had put the old flag
// back, and a send of the new flag's put was applied after another was answered.
func TestFoundResumeFlagAppliedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, lacking)
		a, b := w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		late := make(chan struct{})
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" { // the refresh that is sent at 30 s is applied at 66 s
				a.tap.Before(outage)
				time.AfterFunc(36*time.Second, func() { w.put(r.Key, r.Body); close(late) })
				return errOutage
			}
			return nil
		})
		<-k.Context().Done()
		time.Sleep(8 * time.Second)
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err).Release(t.Context())
		<-late
		var puts, lists atomic.Int32
		a.tap.Before(func(_ context.Context, r tap.Request) error {
			if r.Op == "put" && r.Key != k.Key() && puts.Add(1) == 1 {
				time.AfterFunc(7500*time.Millisecond, func() { w.put(r.Key, r.Body) })
				return errOutage
			}
			if r.Op == "list" && lists.Add(1) == 1 {
				time.Sleep(7900 * time.Millisecond)
			}
			return nil
		})
		if r, err := k.Resume(t.Context()); err == nil {
			t.Error("resumed although a prune has been in between")
			r.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// A machine was suspended between the look of a refresh and its put, the lock was
// broken meanwhile, and the put brought it back, on a store that ignores If-Match.
func TestFoundStoppedAfterTheLook(t *testing.T) {
	for _, mode := range []Mode{Shared, Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, lacking)
			a, b := w.machine(), w.machine()
			k, err := a.acquire(t.Context(), mode, "x")
			mustLock(t, k, err)
			var broken atomic.Bool
			a.tap.Before(func(_ context.Context, r tap.Request) error {
				if r.Op == "list" && r.Key == "index/lock.exclusive" {
					time.Sleep(time.Millisecond) // looked at after the flag, not at the same time
				}
				return nil
			})
			a.tap.After(func(_ context.Context, r tap.Request, err error) error {
				if r.Op == "list" && r.Key == k.Key() && broken.CompareAndSwap(false, true) {
					a.clock.jump(15 * time.Second)
					if _, err := b.Break(t.Context(), BreakOptions{}); err != nil {
						t.Error(err)
					}
				}
				return err
			})
			time.Sleep(DefaultTTL)
			if !broken.Load() || alive(k) {
				t.Errorf("%v: broken %t, alive %t", mode, broken.Load(), alive(k))
			}
			w.empty()
			k.Release(t.Context())
		})
	}
}

// replaces has another take the exclusive lock while its holder releases it.
func (w *world) replaces(ctx context.Context, k *Lock, by *machine) *Lock {
	_ = w.mem.Delete(ctx, k.Key()) // or it is waited for
	other, err := by.Exclusive(w.t.Context(), "prune")
	if err != nil {
		w.t.Error(err)
	}
	return other
}

// lasts wants the lock of that other to be held on.
func (w *world) lasts(other *Lock) {
	w.t.Helper()
	time.Sleep(DefaultTTL)
	if other == nil || !alive(other) {
		w.t.Error("the next one has lost its lock")
	} else {
		other.Release(w.t.Context())
	}
}

// The delete of a release, or where that isn't allowed the put that empties, was applied
// and answered with a 500; another one came in before it was sent again, and lost its
// lock by that.
func TestFoundReleaseIsRepeated(t *testing.T) {
	for _, op := range []string{"delete", "put"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, mem.Options{})
				a, b := w.machine(), w.machine()
				k, err := a.Exclusive(t.Context(), "prune")
				mustLock(t, k, err)
				if op == "put" {
					a.tap.Before(mayNotDelete)
				}
				var other *Lock
				var failed atomic.Bool
				a.tap.After(func(ctx context.Context, r tap.Request, err error) error {
					if r.Op == op && r.Key == "index/lock.exclusive" && failed.CompareAndSwap(false, true) {
						other = w.replaces(ctx, k, b)
						return errOutage
					}
					return err
				})
				k.Release(t.Context())
				w.lasts(other)
				if op == "delete" {
					w.empty()
				}
			})
		})
	}
}

// A delete that isn't allowed was refused only after it had been given up, and the put
// that empties had been sent, applied and answered with a 500; another one came in before
// that was sent again.
func TestFoundReleaseIsRefusedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{})
		a, b := w.machine(), w.machine()
		k, err := a.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		late := make(chan struct{})
		var deletes, puts atomic.Int32
		a.tap.Before(func(ctx context.Context, r tap.Request) error {
			if r.Op == "delete" && r.Key == "index/lock.exclusive" && deletes.Add(1) == 1 {
				<-late // as a system call on a network file system: it heeds no context
			}
			return mayNotDelete(ctx, r)
		})
		var other *Lock
		a.tap.After(func(ctx context.Context, r tap.Request, err error) error {
			if r.Op == "put" && r.Key == "index/lock.exclusive" && puts.Add(1) == 1 {
				other = w.replaces(ctx, k, b)
				close(late)
				time.Sleep(time.Millisecond)
				return errOutage
			}
			return err
		})
		k.Release(t.Context())
		w.lasts(other)
	})
}
