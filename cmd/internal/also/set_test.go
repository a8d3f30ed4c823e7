package also

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// fakeSet returns a set of a fake's keys, in this order.
func fakeSet(f locking.Backend, c *leapclock.Clock, wait time.Duration, keys string) *Set {
	s := &Set{wait: wait, clock: c}
	for _, key := range strings.Split(keys, "") {
		s.members = append(s.members, fakeOther(f, c, key))
	}
	return s
}

// keys returns the keys of requests in their order.
func keys(calls []call) (all string) {
	for _, c := range calls {
		all += c.key
	}
	return all
}

// TestAllOrNothing: whichever lock is refused, and whatever the order, those that were taken
// are released, the last one first, and one event reports which was refused.
func TestAllOrNothing(t *testing.T) {
	for _, order := range []string{"abc", "acb", "bac", "bca", "cab", "cba"} {
		for _, held := range []string{"a", "b", "c", ""} {
			synctest.Test(t, func(t *testing.T) {
				c := leapclock.New()
				f := newFake(c)
				if held != "" {
					f.take(t, held, time.Hour)
				}
				s, r := fakeSet(f, c, 0, order), &record{}
				lock, err := s.Acquire(t.Context(), r.observe)
				if held == "" {
					if err != nil || keys(f.asked("try")) != order {
						t.Fatalf("%v, %s", err, keys(f.asked("try")))
					}
					err = lock.Release(t.Context())
					if !isReverse(keys(f.asked("release")), order) || err != nil {
						t.Errorf("%s released as %s", order, keys(f.asked("release")))
					}
					return
				}
				var refused session.HeldError
				if lock != nil || !errors.As(err, &refused) || refused.Place.URL != "fake:"+held {
					t.Fatalf("%s refused: %v", held, err)
				}
				before, _, _ := strings.Cut(order, held)
				if keys(f.asked("try")) != before+held || !isReverse(keys(f.asked("release")), before) {
					t.Errorf("%s: tried %v, released %v", order, f.asked("try"), f.asked("release"))
				}
				for _, key := range strings.Split(before, "") {
					if key != "" && !f.free(t, key) {
						t.Errorf("%s is left", key)
					}
				}
				if e := r.of(replock.EventBlocked); len(e) != 1 || e[0].Place != "fake:"+held || e[0].Name != held || e[0].Waited != 0 || len(e[0].Holders) != 1 {
					t.Errorf("events: %+v", e)
				}
			})
		}
	}
}

func isReverse(got, of string) bool {
	letters := strings.Split(of, "")
	slices.Reverse(letters)
	return got == strings.Join(letters, "")
}

// TestBrokenMember: an error of one lock releases the others, is no refusal, and ends a wait.
func TestBrokenMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		f.disturb(func(what, key string) error {
			if what == "try" && key == "c" {
				return locking.ErrUnfit
			}
			return nil
		})
		r := &record{}
		lock, err := fakeSet(f, c, replock.Forever, "abc").Acquire(t.Context(), r.observe)
		if lock != nil || !errors.Is(err, locking.ErrUnfit) || keys(f.asked("release")) != "ba" || len(r.of(replock.EventBlocked)) > 0 {
			t.Errorf("%v, %v", err, f.calls)
		}
	})
}

// TestNothingIsHeldDuringAWait: while one lock is refused, the others are free for others.
func TestNothingIsHeldDuringAWait(t *testing.T) {
	for _, held := range []string{"a", "b", "c"} {
		synctest.Test(t, func(t *testing.T) {
			c := leapclock.New()
			f := newFake(c)
			theirs := f.take(t, held, time.Hour)
			r, done := &record{}, make(chan session.Lock)
			go func() {
				l, err := fakeSet(f, c, replock.Forever, "abc").Acquire(t.Context(), r.observe)
				if err != nil {
					t.Error(err)
				}
				done <- l
			}()
			for range 1000 {
				time.Sleep(130 * time.Millisecond)
				synctest.Wait()
				for _, key := range []string{"a", "b", "c"} {
					if f.free(t, key) != (key != held) {
						t.Fatalf("%s, while %s is waited for: free %t", key, held, f.free(t, key))
					}
				}
			}
			if err := f.Backend.Release(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			l := <-done
			if got := keys(f.asked("try")); !strings.HasSuffix(got, held+strings.Replace("abc", held, "", 1)) {
				t.Errorf("tried %s", got[len(got)-3:])
			}
			if n := len(r.of(replock.EventBlocked)); n > 0 {
				t.Errorf("%d refusals of a wait that went on", n)
			}
			_ = l.Release(t.Context())
		})
	}
}

// TestOppositeWishes: two sets with opposite orders, and a slow third program that takes the
// locks one at a time, all come through, and never two hold a lock.
func TestOppositeWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		const rounds = 50
		ended := make(chan string)
		inside := 0
		contend := func(order string) {
			for range rounds {
				l, err := fakeSet(f, c, replock.Forever, order).Acquire(t.Context(), func(events.Event) {})
				if err != nil {
					t.Error(err)
					break
				}
				if inside++; inside > 1 {
					t.Errorf("%d hold all locks", inside)
				}
				time.Sleep(700 * time.Millisecond)
				inside--
				if l.Lost() != nil || l.Release(t.Context()) != nil {
					t.Error("lost")
				}
			}
			ended <- order
		}
		go contend("xyz")
		go contend("zyx")
		over, stop := context.WithCancel(t.Context())
		go func() {
			for i := 0; over.Err() == nil; i++ {
				if h, ok, _ := f.Backend.TryLock(t.Context(), string("xyz"[i%3]), time.Hour); ok {
					time.Sleep(3 * time.Second)
					_ = f.Backend.Release(t.Context(), h)
				}
				time.Sleep(time.Second)
			}
			ended <- "third"
		}()
		<-ended
		<-ended
		stop()
		<-ended
		t.Logf("%d rounds took %v of the fake clock, with %d tries", 2*rounds, c.Elapsed(), len(f.asked("try")))
		for _, key := range []string{"x", "y", "z"} {
			if !f.free(t, key) {
				t.Errorf("%s is left", key)
			}
		}
	})
}

// TestWaitIsOfTheWholeSet: --wait bounds the wait for all locks together, though each is free
// at times, and one event reports how it ended.
func TestWaitIsOfTheWholeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		over, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		defer func() {
			stop()
			<-stopped
		}()
		go func() { // at each moment one of them is held
			defer close(stopped)
			theirs := f.take(t, "a", time.Hour)
			for i := 1; over.Err() == nil; i++ {
				time.Sleep(2 * time.Second)
				next, ok, _ := f.Backend.TryLock(t.Context(), string("ab"[i%2]), time.Hour)
				for ; !ok; next, ok, _ = f.Backend.TryLock(t.Context(), string("ab"[i%2]), time.Hour) {
					time.Sleep(time.Millisecond)
				}
				_ = f.Backend.Release(t.Context(), theirs)
				theirs = next
			}
		}()
		synctest.Wait()
		const wait = 20 * time.Second
		r := &record{}
		lock, err := fakeSet(f, c, wait, "ab").Acquire(t.Context(), r.observe)
		var refused session.HeldError
		if lock != nil || !errors.As(err, &refused) || c.Elapsed() > wait || c.Elapsed() < wait-poll || refused.Waited != c.Elapsed() {
			t.Errorf("at %v: %v", c.Elapsed(), err)
		}
		if e := r.of(replock.EventBlocked); len(e) != 1 || e[0].Waited != c.Elapsed() || e[0].Place != refused.Place.URL {
			t.Errorf("events: %+v", e)
		}
	})
}

// TestPlaces: each event of a member says of which lock it is.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := newFake(c)
		r := &record{}
		l, err := fakeSet(f, c, 0, "ab").Acquire(t.Context(), r.observe)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		_ = l.Release(t.Context())
		var got []string
		for _, e := range r.all {
			got = append(got, string(e.Kind)+" "+e.Place)
			if e.Mode != replock.Exclusive || e.Key != e.Place || e.Time.IsZero() {
				t.Errorf("%+v", e)
			}
		}
		slices.Sort(got)
		want := []string{"acquired fake:a", "acquired fake:b", "refreshed fake:a", "refreshed fake:b", "released fake:a", "released fake:b"}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}
