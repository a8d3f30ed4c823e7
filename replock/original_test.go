package replock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// Each test runs an interleaving with the original protocol, which must let two conflicting
// holders in, and with ours, which must not. docs/evidence/holes.md lists the holes of the original
// protocol by their numbers.

// client is a machine that speaks one of the two protocols.
type client struct {
	*machine
	lock func(ctx context.Context, mode Mode) (held, error)
}

// must takes a lock, and releases it when the test ends.
func (c client) must(t *testing.T, mode Mode) held {
	t.Helper()
	h, err := c.lock(t.Context(), mode)
	assert.OK(t, err)
	t.Cleanup(func() { end(h) })
	return h
}

// held is a granted lock.
type held interface {
	Held() bool
	Release(context.Context) error
}

type heldByUs struct{ *Lock }

func (h heldByUs) Held() bool { return alive(h.Lock) }

func (w *world) ours() client {
	m := w.machine()
	return client{m, func(ctx context.Context, mode Mode) (held, error) {
		k, err := m.lock(ctx, mode, mode.String())
		return granted(heldByUs{k}, err)
	}}
}

// granted is a lock, unless there is an error.
func granted(h held, err error) (held, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (w *world) originals() client {
	m := w.machine()
	l := &cloudsticlock.Locker{Store: m.hooks, Clock: m.clock, Holder: m.self.Holder()}
	return client{m, func(ctx context.Context, mode Mode) (held, error) {
		f := l.Shared
		if mode == Exclusive {
			f = l.Exclusive
		}
		k, err := f(ctx, mode.String())
		return granted(k, err)
	}}
}

// hole runs an interleaving with both protocols. The interleaving returns whether two were in at once.
func hole(t *testing.T, run func(t *testing.T, w *world, a, b client) (both bool)) {
	for name, clients := range map[string]func(*world) client{"original": (*world).originals, "ours": (*world).ours} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			a, b := clients(w), clients(w)
			equal(t, "both in at once", run(t, w, a, b), name == "original")
			// All goroutines end.
			for _, c := range []client{a, b} {
				c.hooks.Before(nil)
				c.hooks.After(nil)
			}
		})
	}
}

// pause holds back a client's first request of a kind until the gate opens, and signals when the request has come.
func (c client) pause(op, key string) (came, gate chan struct{}) {
	came, gate = make(chan struct{}), make(chan struct{})
	c.hooks.Before(first(op, key, func(hookstore.Request) error { close(came); <-gate; return nil }))
	return came, gate
}

// end releases the granted locks.
func end(hs ...held) {
	for _, h := range hs {
		if h != nil {
			h.Release(context.Background())
		}
	}
}

func both(a, b held) bool { return a != nil && b != nil && a.Held() && b.Held() }

// overtaken makes b take a lock while a's put of lock.exclusive is on its way, after a has looked.
func overtaken(t *testing.T, a, b client, mode Mode) bool {
	came, gate := a.pause("put", pointer)
	var x held
	done := make(chan struct{})
	go func() { defer close(done); x, _ = a.lock(context.Background(), Exclusive) }()
	<-came
	y, _ := b.lock(t.Context(), mode)
	close(gate)
	<-done
	defer end(x, y)
	return both(x, y)
}

// TestExclusiveLooksAgainAfterItsPut: an exclusive acquirer looks at the shared locks again after its own put.
// Hole 1 of the original protocol: docs/evidence/holes.md.
func TestExclusiveLooksAgainAfterItsPut(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool { return overtaken(t, a, b, Shared) })
}

// TestOneOfTwoExclusivesIsIn: only one of two exclusive acquirers enters, although the second looked before the first
// wrote, and wrote after the first verified. Hole 2 of the original protocol: docs/evidence/holes.md.
func TestOneOfTwoExclusivesIsIn(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool { return overtaken(t, a, b, Exclusive) })
}

// TestReadErrorIsNoFreeLock: a read that fails doesn't count as "no lock".
// Hole 3 of the original protocol: docs/evidence/holes.md.
func TestReadErrorIsNoFreeLock(t *testing.T) {
	for name, fails := range map[string]error{"503": errOutage, "no permission": store.ErrPermission, "garbage": nil} {
		t.Run(name, func(t *testing.T) {
			hole(t, func(t *testing.T, w *world, a, b client) bool {
				s := a.must(t, Shared)
				if fails == nil {
					for _, key := range w.keys() {
						w.put(key, []byte(`{"operation": "backup", "holder`))
					}
				}
				b.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
					if fails != nil && (r.Op == "list" || r.Op == "get" && r.Key != pointer) {
						return fails
					}
					return err
				})
				x, err := b.lock(t.Context(), Exclusive)
				assert.That(t, x != nil || fails == nil || !errors.Is(err, ErrHeld), "a store that fails is reported as a lock: %v", err)
				defer end(x)
				return both(s, x)
			})
		})
	}
}

// TestSkewHidesNoLiveLock: a reader's wrong clock hides no live lock.
// Hole 4 of the original protocol: docs/evidence/holes.md.
func TestSkewHidesNoLiveLock(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		b.clock.setSkew(35 * time.Second)
		s := a.must(t, Shared)
		time.Sleep(29 * time.Second)
		x, _ := b.lock(t.Context(), Exclusive)
		defer end(x)
		return both(s, x)
	})
}

// TestHolderEndsWithItsLease: a holder that can't refresh ends before its lease does.
// Hole 5 of the original protocol: docs/evidence/holes.md.
func TestHolderEndsWithItsLease(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		s := a.must(t, Shared)
		a.hooks.Before(outage)
		time.Sleep(65 * time.Second)
		return both(s, b.must(t, Exclusive))
	})
}

// TestRefreshRevivesNoBrokenLock: a refresh in flight doesn't bring back a lock that was broken.
// Hole 5 of the original protocol: docs/evidence/holes.md.
func TestRefreshRevivesNoBrokenLock(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		s := a.must(t, Shared)
		came, gate := a.pause("put", "lock.shared")
		<-came
		w.breakAll()
		x := b.must(t, Exclusive)
		close(gate)
		time.Sleep(2 * time.Minute)
		return both(s, x)
	})
}

// TestPausedHolderEndsWhenItWakes: a paused process doesn't carry on after another holder has come in.
// Hole 6 of the original protocol: docs/evidence/holes.md.
func TestPausedHolderEndsWhenItWakes(t *testing.T) {
	hole(t, func(t *testing.T, w *world, a, b client) bool {
		s := a.must(t, Shared)
		a.clock.Stop(2 * time.Minute)
		time.Sleep(70 * time.Second)
		x := b.must(t, Exclusive)
		time.Sleep(51 * time.Second) // a second after it woke
		return both(s, x)
	})
}

// comesBeside puts a lock of a client of the original protocol, which has passed ours.
func (w *world) comesBeside(mode Mode) (key string) {
	if key = pointer; mode == Exclusive {
		key = "index/lock.shared/theirs"
	}
	w.put(key, foreign(time.Now(), mode == Exclusive))
	return key
}

// comesBesideFor is such a lock that is withdrawn after a while.
func (w *world) comesBesideFor(mode Mode, d time.Duration) {
	theirs := w.comesBeside(mode)
	time.Sleep(d)
	w.delete(theirs)
}

// TestLooksSoonAfterAcquiring: a client of the original protocol that has entered while ours acquired is a loss
// within seconds, however seldom the holder looks. A lock with a name has no such clients.
func TestLooksSoonAfterAcquiring(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		k := w.machine(func(o *Options) { o.TTL, o.Look = 10*time.Minute, DefaultTTL }).takes(t, mode)
		w.comesBeside(mode)
		start := time.Now()
		ends(t, k, time.Hour)
		took(t, start, time.Second, 2*time.Second+2*verdict.Transient) // not before it can have been withdrawn
	})
	do(t, func(t *testing.T, w *world) {
		m, _ := w.holder(t, Shared, func(o *Options) { o.Name = "mine" })
		m.hooks.Count()
		time.Sleep(5 * time.Second)
		m.sentJust(t, nil)
	})
}

// TestUnreadLockIsInDoubt: Check confirms no lock beside another client's that it can't read, nor beside
// one that a listing shows and a read doesn't find. One that a second listing doesn't show is gone.
func TestUnreadLockIsInDoubt(t *testing.T) {
	for name, read := range map[string]error{
		"not readable": store.ErrPermission, "not answered": errOutage,
		"listed, and not found": store.ErrNotFound, "deleted after it was listed": store.ErrNotFound,
	} {
		gone := strings.HasPrefix(name, "deleted")
		t.Run(name, func(t *testing.T) {
			stores.holders(t, func(t *testing.T, w *world, m *machine, k *Lock) {
				theirs := w.comesBeside(k.Mode())
				m.hooks.Before(inTurn(on("get", theirs, func(hookstore.Request) {
					if gone {
						w.delete(theirs)
					}
				}), fails("get", theirs, read)))
				start := time.Now()
				err := k.Check(t.Context())
				assert.That(t, (err == nil) == gone && !errors.Is(err, ErrLost) && alive(k), "%v; the lock lives: %v", err, alive(k))
				if gone {
					took(t, start, 0, time.Second)
				}
			})
		})
	}
}

// TestReplacedBeforeItIsRead: acquirers that follow one another write lock.exclusive beside a shared lock. One that
// has given way to another one before it was read doesn't delay a release.
func TestReplacedBeforeItIsRead(t *testing.T) {
	holding(t, memory.Options{}, Shared, func(t *testing.T, w *world, m *machine, k *Lock) {
		put := func() {
			a := w.machine()
			try := a.try(Exclusive)
			a.date(try)
			w.put(pointer, try.body.Encode())
		}
		put()
		m.hooks.Before(first("get", pointer, func(hookstore.Request) error { put(); return store.ErrNotFound }))
		start := time.Now()
		assert.OK(t, k.Check(t.Context()))
		took(t, start, 0, time.Second)
		w.delete(pointer)
	})
}

// TestWhatWasPutBesideIsHeldInDoubt: what stands beside a held lock, and wasn't there when it was
// taken, ends it unless it is certainly stale: an encrypted body, whose age no clock shows, too, and
// one that this machine's clock alone calls expired.
func TestWhatWasPutBesideIsHeldInDoubt(t *testing.T) {
	encrypted := func(bool) []byte { return []byte{1, 2, 3} }
	expired := func(shared bool) []byte { return foreign(time.Now().Add(-time.Hour), shared) }
	clocks := kinds{"no store clock": {NoStoreClock: true}, "no time": {NoStoreClock: true, NoTime: true}}
	beside := func(body func(shared bool) []byte) func(t *testing.T, w *world) {
		return func(t *testing.T, w *world) {
			w.put("index/lock.shared/000", body(true)) // which keeps no shared lock out
			k := w.machine().takes(t, Shared)
			w.put(pointer, body(false))
			ends(t, k, 3*DefaultLook)
		}
	}
	clocks.each(t, beside(expired)) // a store's clock confirms that it has
	clocks["no time on pages of one"] = memory.Options{NoTime: true, PageSize: 1}
	clocks.each(t, beside(encrypted))
	holding(t, memory.Options{NoStoreClock: true}, Exclusive, func(t *testing.T, w *world, _ *machine, k *Lock) {
		w.put("index/lock.shared/theirs", encrypted(true))
		ends(t, k, 3*DefaultLook)
	})
}

// TestExpiresAMinuteAhead: clients of the original protocol judge by expires_at only. It is a minute ahead at
// every moment of a held lock, whatever its ttl, even if no refresh is answered any more.
func TestExpiresAMinuteAhead(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, DefaultTTL, time.Hour} {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			a, k := w.holder(t, mode, func(o *Options) { o.TTL = ttl })
			time.AfterFunc(2*ttl, func() { a.hooks.Before(outage) })
			for ; alive(k); time.Sleep(ttl / 120) {
				w.expire(t, time.Minute, ttl+time.Minute)
			}
		})
	}
}

// expire fails unless all locks expire after least to most, as clients of the original protocol read them.
func (w *world) expire(t *testing.T, least, most time.Duration) {
	t.Helper()
	for _, key := range w.keys() {
		if left := time.Until(w.body(key).Expires); left < least || left > most {
			t.Fatalf("%s expires in %v", key, left)
		}
	}
}

// TestExpiresByTheStoresClock: a wall clock that is behind doesn't make a lock look expired to
// clients of the original protocol, from a moment after it was taken.
func TestExpiresByTheStoresClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -verdict.Margin - time.Second, time.Hour} {
		bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
			a := w.machine()
			a.clock.setSkew(skew)
			a.takes(t, mode)
			time.Sleep(time.Millisecond)
			for range 100 {
				w.expire(t, 90*time.Second-DefaultTTL/2, Forever)
				time.Sleep(time.Second)
			}
		})
	}
}

// TestLongDeadEncrypted: an encrypted body isn't watched if both clocks call it older than any clock error.
func TestLongDeadEncrypted(t *testing.T) {
	for name, c := range map[string]struct {
		age, store, wall  time.Duration // the steps come after the body
		noClock, isPassed bool
	}{
		"28 h old":                        {age: 28 * time.Hour, isPassed: true},
		"ten minutes old":                 {age: 10 * time.Minute},
		"the store's clock is stepped":    {age: 10 * time.Minute, store: 48 * time.Hour},
		"this machine's clock is stepped": {age: 10 * time.Minute, wall: 48 * time.Hour},
		"both are in the wrong zone":      {age: 10 * time.Minute, wall: 26 * time.Hour, store: 26 * time.Hour},
		"the store has no clock":          {age: 48 * time.Hour, noClock: true},
	} {
		sub(t, name, memory.Options{NoStoreClock: c.noClock}, func(t *testing.T, w *world) {
			w.put("index/lock.shared/theirs", []byte("\x01 this is ciphertext"))
			time.Sleep(c.age)
			m := w.machine()
			w.skew.Store(int64(c.store))
			m.clock.setSkew(c.wall)
			began := time.Now()
			m.takes(t, Exclusive)
			equal(t, "passed without being watched", time.Since(began) < wire.ForeignTTL, c.isPassed)
		})
	}
}

// TestBesideTheOriginal: if two conflicting clients come at one time, one of ours and one of the original protocol, they
// rarely both enter, although requests last from half to three halves of a round trip. If they do, ours notices within
// seconds. Two of the original protocol never notice.
func TestBesideTheOriginal(t *testing.T) {
	n := rounds.Fewer(1000, 50)
	for _, trip := range []time.Duration{0, 40 * time.Millisecond} {
		for _, leftovers := range []int{0, 5} {
			for _, modes := range [][2]Mode{{Exclusive, Shared}, {Shared, Exclusive}, {Exclusive, Exclusive}} {
				in := map[string]int{}
				for round := range n {
					for name, second := range map[string]func(*world) client{"theirs": (*world).originals, "ours": (*world).besides} {
						do(t, func(t *testing.T, w *world) {
							w.leftovers(leftovers)
							was, is := w.race(t, trip, round, [2]client{w.originals(), second(w)}, modes)
							if was {
								in[name+", at first"]++
							}
							if is {
								in[name]++
							}
						})
					}
				}
				t.Logf("%v a round trip, %d leftovers, their %v lock and another %v one: both were let in %v of %d times", trip, leftovers, modes[0], modes[1], in, n)
				assert.That(t, in["ours"] == 0 && in["ours, at first"] <= 1+n/20,
					"%v a round trip, %d leftovers, their %v lock and our %v one: both were let in %d of %d times, and both held %d times",
					trip, leftovers, modes[0], modes[1], in["ours, at first"], n, in["ours"])
			}
		}
	}
}

// TestNoWindowBesideTheOriginal: if the requests of both clients take the same time, no start of the two lets both in.
func TestNoWindowBesideTheOriginal(t *testing.T) {
	const trip = 40 * time.Millisecond
	for _, leftovers := range []int{0, 5} {
		for _, modes := range [][2]Mode{{Exclusive, Shared}, {Shared, Exclusive}, {Exclusive, Exclusive}} {
			times := map[string]int{}
			for at := -10 * trip; at <= 10*trip; at += trip/4 + trip/100 {
				do(t, func(t *testing.T, w *world) {
					w.leftovers(leftovers)
					clients := [2]client{w.originals(), w.besides()}
					var locks [2]held
					var wg sync.WaitGroup
					for n, c := range clients {
						c.delayed(trip)
						wg.Go(func() {
							time.Sleep(max(0, time.Duration(2*n-1)*at))
							locks[n], _ = c.lock(t.Context(), modes[n])
						})
					}
					wg.Wait()
					assert.That(t, !both(locks[0], locks[1]), "%d leftovers, their %v lock and our %v one, ours %v later: both were let in", leftovers, modes[0], modes[1], at)
					for n, k := range locks {
						if k != nil {
							times[[]string{"theirs", "ours"}[n]]++
						}
						clients[n].hooks.Before(nil)
					}
					end(locks[:]...)
				})
			}
			t.Logf("%d leftovers, their %v lock and our %v one: let in %v", leftovers, modes[0], modes[1], times)
			assert.That(t, times["theirs"] > 0 && times["ours"] > 0, "only one of the two was ever let in: %v", times)
		}
	}
}

// besides is a client of ours in a Cloudstic repository.
func (w *world) besides() client {
	m := w.machine(func(o *Options) { o.Beside = BesideCloudstic })
	return client{m, func(ctx context.Context, mode Mode) (held, error) {
		k, err := m.lock(ctx, mode, mode.String())
		return granted(heldByUs{k}, err)
	}}
}

// leftovers puts shared flags of original clients that were killed an hour ago.
func (w *world) leftovers(n int) {
	for i := range n {
		w.put(fmt.Sprintf("index/lock.shared/2026-03-07T09:00:0%d.5+02:00", i), foreign(time.Now(), true))
	}
	if n > 0 {
		time.Sleep(time.Hour)
	}
}

// race makes two clients take a lock at almost one time. It reports whether both entered,
// and whether both believe that they hold it 6 s later.
func (w *world) race(t *testing.T, trip time.Duration, round int, clients [2]client, modes [2]Mode) (was, is bool) {
	var locks [2]held
	var wg sync.WaitGroup
	for n, c := range clients {
		c.paces(func() time.Duration { return c.jitter(trip) / 2 })
		wg.Go(func() {
			time.Sleep(time.Duration((round*(2*n-1)+1000)%7) * trip / 3)
			locks[n], _ = c.lock(t.Context(), modes[n])
		})
	}
	wg.Wait()
	was = both(locks[0], locks[1])
	time.Sleep(6 * time.Second)
	is = both(locks[0], locks[1])
	for _, c := range clients {
		c.hooks.Before(nil)
	}
	end(locks[:]...)
	return was, is
}

// TestOriginalAfterACrash: a client of the original protocol waits after a crash of ours for as long as
// docs/evidence/limits.md says.
func TestOriginalAfterACrash(t *testing.T) {
	page, err := os.ReadFile("../docs/evidence/limits.md")
	assert.OK(t, err)
	eachOf(t, []time.Duration{DefaultTTL, MinTTL}, func(t *testing.T, w *world, ttl time.Duration) {
		a, _ := w.holder(t, Exclusive, func(o *Options) { o.TTL = ttl })
		a.hooks.Before(outage)
		began, c := time.Now(), w.originals()
		h, err := c.lock(t.Context(), Shared)
		for ; err != nil; h, err = c.lock(t.Context(), Shared) {
			time.Sleep(100 * time.Millisecond)
		}
		end(h)
		says := fmt.Sprintf("waits %.0f s", time.Since(began).Seconds())
		assert.That(t, strings.Contains(strings.ReplaceAll(string(page), "up to ", ""), says),
			"ttl %v: the page doesn't say that it %s", ttl, says)
	})
}
