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
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// orders are all orders of three locks.
var orders = []string{"abc", "acb", "bac", "bca", "cab", "cba"}

func reverse(s string) string {
	letters := strings.Split(s, "")
	slices.Reverse(letters)
	return strings.Join(letters, "")
}

// TestAllInOrder: the locks are acquired in their order, and released in reverse. The set is named
// as its first lock, and each event has the place of its lock.
func TestAllInOrder(t *testing.T) {
	for _, order := range orders {
		inBubble(t, func(t *testing.T, f *fake) {
			l, r := f.holds(t, order)
			assert.That(t, f.keys("try") == order && l.About().Key == "fake:"+order[:1], "%s, and named as %s: %s", f.keys("try"), l.About().Key, order)
			time.Sleep(30 * time.Second)
			err := l.Release(t.Context())
			assert.That(t, err == nil && f.keys("release") == reverse(order) && f.free(t, order),
				"%s released as %s: %v", order, f.keys("release"), err)
			var got, want []string
			for _, e := range r.all {
				got = append(got, string(e.Kind)+" "+e.Place)
				assert.That(t, e.Mode == replock.Exclusive && e.Key == e.Place && !e.Time.IsZero(), "%+v", e)
			}
			for _, kind := range []string{"acquired", "refreshed", "released"} {
				want = append(want, kind+" fake:a", kind+" fake:b", kind+" fake:c")
			}
			slices.Sort(got)
			assert.Equal(t, got, want)
		})
	}
}

// TestAllOrNothing: whichever lock is refused, and whatever the order, the acquired locks
// are released, the last one first, and one event reports the refused lock.
func TestAllOrNothing(t *testing.T) {
	for _, order := range orders {
		for theirs := range strings.SplitSeq("abc", "") {
			inBubble(t, func(t *testing.T, f *fake) {
				f.take(t, theirs, time.Hour)
				r := &record{}
				lock, err := f.set(0, order).Acquire(t.Context(), r.observe)
				var refused session.HeldError
				assert.Need(t, lock == nil && errors.As(err, &refused) && refused.Place.URL == "fake:"+theirs, "%s refused: %v", theirs, err)
				before, _, _ := strings.Cut(order, theirs)
				assert.That(t, f.keys("try") == before+theirs && f.keys("release") == reverse(before) && f.free(t, before), "%s: %v", order, f.calls)
				e := r.of(replock.EventBlocked)
				assert.That(t, len(e) == 1 && e[0].Place == "fake:"+theirs && e[0].Name == theirs && e[0].Waited == 0 && len(e[0].Holders) == 1,
					"events: %+v", e)
			})
		}
	}
}

// TestKnownHolderBehindASilentSystem: a silent system doesn't hide that another lock is held, so
// that no command runs beside its holder.
func TestKnownHolderBehindASilentSystem(t *testing.T) {
	for _, order := range orders { // a is silent, b held
		inBubble(t, func(t *testing.T, f *fake) {
			f.take(t, "b", time.Hour)
			f.disturb(failing("try", "a", locking.ErrUnreachable))
			s := f.set(0, order)
			l, err := s.Acquire(t.Context(), (&record{}).observe)
			assert.That(t, l == nil && errors.Is(err, replock.ErrHeld) && s.failed.place().Name == "b" && f.free(t, "c"), "%s: %v", order, err)
			s = f.set(0, "ac")
			l, err = s.Acquire(t.Context(), (&record{}).observe)
			assert.That(t, l == nil && errors.Is(err, store.ErrUnreachable) && !s.Answered() && f.free(t, "c"), "nothing is held: %v", err)
		})
	}
}

// TestTwoNamesOfOneLock: a set that names one lock twice doesn't wait for itself.
func TestTwoNamesOfOneLock(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, err := f.set(replock.Forever, "aba").Acquire(t.Context(), (&record{}).observe)
		assert.That(t, l == nil && errors.Is(err, fault.URL) && f.free(t, "ab"), "%v, %v", l, err)
	})
}

// TestNothingIsHeldDuringAWait: a set that waits for one lock holds none of the others. Then it acquires that lock first,
// and is named and released as any set.
func TestNothingIsHeldDuringAWait(t *testing.T) {
	for theirs, others := range map[string]string{"a": "bc", "b": "ac", "c": "ab"} {
		inBubble(t, func(t *testing.T, f *fake) {
			f.take(t, theirs, 2*time.Minute)
			for at := 130 * time.Millisecond; at < 2*time.Minute; at += 130 * time.Millisecond {
				time.AfterFunc(at, func() {
					assert.That(t, f.free(t, others), "%v, while %s is waited for: %s aren't free", at, theirs, others)
				})
			}
			r := &record{}
			l, err := f.set(replock.Forever, "abc").Acquire(t.Context(), r.observe)
			assert.Need(t, err == nil && f.clock.Elapsed() >= 2*time.Minute && strings.HasSuffix(f.keys("try"), theirs+others) && len(r.of(replock.EventBlocked)) == 0,
				"at %v: %v, refused: %v", f.clock.Elapsed(), err, r.of(replock.EventBlocked))
			err = l.Release(t.Context())
			assert.That(t, err == nil && l.About().Key == "fake:a" && strings.HasSuffix(f.keys("release"), "cba"), "%s, released as %s: %v", l.About().Key, f.keys("release"), err)
		})
	}
}

// TestWaitOfASetEnds: the wait of a set ends with its context, with the refusal, and the set tries no lock again.
func TestWaitOfASetEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.take(t, "b", 24*time.Hour)
		why := errors.New("a signal")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(why) })
		r, tries := &record{}, 0
		f.disturb(func(what, _ string) error {
			if what == "try" && ctx.Err() != nil {
				tries++
			}
			assert.Need(t, tries < 10, "it goes on")
			return nil
		})
		l, err := f.set(replock.Forever, "abc").Acquire(ctx, r.observe)
		assert.That(t, l == nil && errors.Is(err, why) && errors.Is(err, replock.ErrHeld) && f.clock.Elapsed() == 10*time.Second && tries == 0, "at %v, after %d tries: %v", f.clock.Elapsed(), tries, err)
		assert.That(t, f.free(t, "ac") && len(r.of(replock.EventBlocked)) == 1, "refused: %v", r.of(replock.EventBlocked))
	})
}

// silent is a member whose events never come.
type silent struct{ member }

func (silent) flush(ctx context.Context) { <-ctx.Done() }

// TestInOrderGivesUp: events that don't come delay the next lock for no longer than a release does.
func TestInOrderGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		(&Set{members: []member{silent{}}}).inOrder()
		assert.Equal(t, time.Since(began), lease.MaxDelay)
	})
}

// TestOppositeWishes: two sets with opposite orders, and a slow third program that takes the locks one at a time, all
// acquire their locks. No lock ever has two holders.
func TestOppositeWishes(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		ended := make(chan string)
		inside := 0
		for _, order := range []string{"xyz", "zyx"} {
			go func() {
				for range 50 {
					l, err := f.set(replock.Forever, order).Acquire(t.Context(), func(events.Event) {})
					if err != nil {
						t.Error(err)
						break
					}
					inside++
					assert.That(t, inside == 1, "%d hold all locks", inside)
					time.Sleep(700 * time.Millisecond)
					inside--
					assert.That(t, l.Lost() == nil && l.Release(t.Context()) == nil, "lost")
				}
				ended <- order
			}()
		}
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
		assert.That(t, f.free(t, "xyz"), "a lock is left")
	})
}

// TestWaitIsOfTheWholeSet: --wait bounds the wait for all locks together, though each is free
// at times, and one event reports how it ended.
func TestWaitIsOfTheWholeSet(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.disturb(func(what, key string) error {
			if turn := f.clock.Elapsed() / (2 * time.Second) % 2; what == "try" && key == string("ab"[turn]) {
				_, _, _ = f.Backend.TryLock(t.Context(), key, 2*time.Second) // another program is faster
			}
			return nil
		})
		const wait = 20 * time.Second
		r := &record{}
		lock, err := f.set(wait, "ab").Acquire(t.Context(), r.observe)
		var refused session.HeldError
		now := f.clock.Elapsed()
		assert.That(t, lock == nil && errors.As(err, &refused) && now <= wait && now >= wait-poll && refused.Waited == now && len(f.asked("release")) != 0,
			"at %v: %v", now, err)
		e := r.of(replock.EventBlocked)
		assert.That(t, len(e) == 1 && e[0].Waited == now && e[0].Place == refused.Place.URL, "events: %+v", e)
	})
}

// stub is a member of a set that fails. With teases, it succeeds if it may wait.
type stub struct {
	err    error
	yes    bool
	teases *other // nil: it doesn't
}

func (s *stub) place() session.Place  { return session.Place{} }
func (s *stub) flush(context.Context) {}
func (s *stub) answered() bool        { return s.yes }
func (s *stub) acquire(ctx context.Context, wait time.Duration, observe func(events.Event)) (*lease.Lease, error) {
	if s.teases != nil && wait > 0 {
		return s.teases.acquire(ctx, 0, observe)
	}
	observe(events.Event{Event: replock.Event{Kind: replock.EventBlocked}})
	return nil, s.err
}

// TestPausesAreInTheWait: the pauses between the rounds of a set end with --wait, and the
// members' own refusals aren't reported beside the last.
func TestPausesAreInTheWait(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		const wait = 20 * time.Second
		s, r := f.set(wait, ""), &record{}
		for range 2 {
			s.members = append(s.members, &stub{teases: f.other("t"), err: &replock.HeldError{Mode: replock.Shared, Holders: []replock.Info{{Keys: []string{"key"}}}}})
		}
		lock, err := s.Acquire(t.Context(), r.observe)
		assert.That(t, lock == nil && errors.Is(err, replock.ErrHeld) && f.clock.Elapsed() == wait, "at %v: %v", f.clock.Elapsed(), err)
		e := r.of(replock.EventBlocked)
		assert.That(t, len(e) == 1 && e[0].Waited == wait && e[0].Mode == replock.Shared, "events: %+v", e)
	})
}

// TestAnsweredIsOfTheFailure: a set has answered if the member that failed has answered. A held set has answered, too.
// An error of one member ends a wait, releases the others, and is no refusal.
func TestAnsweredIsOfTheFailure(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		for _, yes := range []bool{true, false} {
			s, r := f.set(replock.Forever, "a"), &record{}
			s.members = append(s.members, &stub{err: errors.New("it failed"), yes: yes}, &stub{err: errors.New("not asked"), yes: !yes})
			assert.That(t, !s.Answered(), "before Acquire")
			_, err := s.Acquire(t.Context(), r.observe)
			assert.That(t, err != nil && err.Error() == "it failed" && s.Answered() == yes, "%v, answered %t", err, s.Answered())
			assert.That(t, f.free(t, "a") && len(r.of(replock.EventBlocked)) == 0, "a is left, or events: %v", r.kinds())
		}
		s := f.set(0, "a")
		_, err := s.Acquire(t.Context(), func(events.Event) {})
		assert.That(t, err == nil && s.Answered(), "held: %v, answered %t", err, s.Answered())
	})
}

// TestSettle: all locks are held, and renewed, for the time of --settle before Acquire returns. A signal or a loss
// in that time releases them, also a loss that no renewal has noticed. It is no silence in which the command could run.
func TestSettle(t *testing.T) {
	signal := errors.New("a signal")
	for name, c := range map[string]struct {
		settle, at  time.Duration // at: of the signal, or the loss
		broken      string
		want        error
		least, most time.Duration
	}{
		"held":          {5 * time.Minute, 0, "", nil, 5 * time.Minute, 5 * time.Minute},
		"signal":        {5 * time.Minute, time.Minute, "", signal, time.Minute, time.Minute},
		"renewal":       {5 * time.Minute, time.Minute, "a", replock.ErrLost, time.Minute, 90 * time.Second},
		"look, the 1st": {5 * time.Second, 4 * time.Second, "a", replock.ErrLost, 5 * time.Second, 5 * time.Second},
		"look, the 2nd": {5 * time.Second, 4 * time.Second, "b", replock.ErrLost, 5 * time.Second, 5 * time.Second},
	} {
		inBubble(t, func(t *testing.T, f *fake) {
			s := f.set(0, "ab")
			s.settle = c.settle
			ctx, cancel := context.WithCancelCause(t.Context())
			for at := time.Second; at < c.least; at += 10 * time.Second {
				time.AfterFunc(at, func() { assert.That(t, !f.free(t, "a") && !f.free(t, "b"), "%s: not held at %v", name, at) })
			}
			time.AfterFunc(c.at, func() {
				switch {
				case c.broken != "":
					f.breakLock(t, c.broken)
				case c.want != nil:
					cancel(signal)
				}
			})
			l, err := s.Acquire(ctx, (&record{}).observe)
			now := f.clock.Elapsed()
			assert.That(t, (l != nil) == (c.want == nil) && errors.Is(err, c.want) && now >= c.least && now <= c.most && s.Answered(),
				"%s: at %v: %v, %v, answered %t", name, now, l, err, s.Answered())
			assert.That(t, c.want == nil || f.keys("release") == "ba" && f.free(t, "ab"), "%s: released %s", name, f.keys("release"))
			assert.That(t, c.want != nil || len(f.asked("renew")) >= 20, "%s: %d renewals", name, len(f.asked("renew")))
			cancel(nil)
		})
	}
}

// TestLostWhileOthersAreAcquired: a lock that is lost while the next one is acquired ends the
// acquire, whether a renewal has noticed it or not.
func TestLostWhileOthersAreAcquired(t *testing.T) {
	const took = 12 * time.Second
	for interval, look := range map[time.Duration]time.Duration{5 * time.Second: time.Minute, 20 * time.Second: 10 * time.Second} {
		inBubble(t, func(t *testing.T, f *fake) {
			s := f.set(0, "ab")
			s.look = look
			s.members[0].(*other).schedule.Interval = interval
			f.disturb(func(what, key string) error {
				if what == "try" && key == "b" {
					f.breakLock(t, "a")
					time.Sleep(took)
				}
				return nil
			})
			l, err := s.Acquire(t.Context(), (&record{}).observe)
			assert.That(t, l == nil && errors.Is(err, replock.ErrLost) && f.free(t, "b"), "renewed each %v: %v, %v", interval, l, err)
		})
	}
}

// TestEventsOfRepositories: the events of repositories' locks come in the order of the locks, with their places,
// even if the observer is slow.
func TestEventsOfRepositories(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s, r := f.set(0, ""), &record{}
		for _, name := range []string{"a", "b"} {
			m := memory.New(memory.Options{})
			s.members = append(s.members, &repository{&session.Repository{
				Open: func(context.Context) (store.Store, error) { return m, nil }, New: replock.New,
				Options: replock.Options{Clock: f.clock}, Mode: replock.Exclusive, Operation: "test",
			}, session.Place{URL: "repo:/r#" + name, Name: name}})
		}
		l, err := s.Acquire(t.Context(), func(e events.Event) {
			if e.Name == "b" {
				time.Sleep(lease.MaxDelay / 10)
			}
			r.observe(e)
		})
		assert.OK(t, err)
		assert.Is(t, l.Release(t.Context()), nil)
		s.Flush(t.Context())
		var got []string
		for _, e := range r.all {
			if e.Kind == replock.EventAcquired || e.Kind == replock.EventReleased {
				got = append(got, string(e.Kind)+" "+e.Place)
			}
		}
		want := []string{"acquired repo:/r#a", "acquired repo:/r#b", "released repo:/r#b", "released repo:/r#a"}
		assert.That(t, slices.Equal(got, want), "%q", got)
	})
}

// TestErrorNamesARepository: the error of a repository of --also begins with its URL. The first repository of a set has no
// place here, and its caller names it.
func TestErrorNamesARepository(t *testing.T) {
	for url, want := range map[string]string{"repo:/r": "repo:/r: no space left", "": "no space left"} {
		m := &repository{&session.Repository{
			Open: func(context.Context) (store.Store, error) { return nil, store.ErrFull }, Mode: replock.Exclusive,
		}, session.Place{URL: url}}
		_, err := m.acquire(t.Context(), 0, func(events.Event) {})
		assert.That(t, errors.Is(err, store.ErrFull) && strings.HasPrefix(err.Error(), want), "%q: %v", url, err)
	}
}

// TestNoResumeBesideALossForGood: no lock of a set is resumed if another one is lost for good.
func TestNoResumeBesideALossForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, _ := f.holds(t, "BC")
		f.breakLock(t, "C")
		f.disturb(failing("renew", "B", locking.ErrUnreachable))
		time.Sleep(time.Minute)
		f.disturb(nil)
		err := l.Resume(t.Context())
		assert.That(t, errors.Is(err, replock.ErrLost) && loss(l).Key == "fake:C" && len(f.asked("resume")) == 0, "%v, %v", err, f.asked("resume"))
		assert.Is(t, l.Release(t.Context()), nil)
	})
}

// suspended returns a set that lost some of its locks because they couldn't be renewed.
func (f *fake) suspended(t *testing.T, keys, lost string) (*lease.Set, *record) {
	t.Helper()
	l, r := f.holds(t, keys)
	f.lose(l, lost)
	return l, r
}

// lose lets some locks of a set be lost because they can't be renewed.
func (f *fake) lose(l *lease.Set, lost string) {
	f.disturb(failing("renew", lost, locking.ErrUnreachable))
	<-l.Context().Done()
	synctest.Wait()
	f.disturb(nil)
}

// TestResumeOfASet: only the lost locks are resumed, and then all are held. The loss of one lock ends the set's context
// with its cause, and the others are held until the release.
func TestResumeOfASet(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := f.suspended(t, "aBCd", "BC")
		lost := loss(l)
		assert.Need(t, lost != nil && !lost.Definite, "%v", lost)
		err := l.Resume(t.Context())
		assert.OK(t, err)
		assert.That(t, f.keys("resume") == "BC" && len(r.of(replock.EventResumed)) == 2 && l.Lost() == nil && l.Context().Err() == nil,
			"resumed %v; lost: %v", f.keys("resume"), l.Lost())
		time.Sleep(10 * time.Minute)
		assert.That(t, l.Lost() == nil && l.Deadline() > f.clock.Elapsed(), "lost: %v", l.Lost())
		f.breakLock(t, "C")
		<-l.Context().Done()
		synctest.Wait()
		assert.That(t, errors.Is(context.Cause(l.Context()), replock.ErrLost) && loss(l).Key == "fake:C" && !f.free(t, "a") && !f.free(t, "d"),
			"%v, %v", context.Cause(l.Context()), loss(l))
		err = l.Release(t.Context())
		assert.That(t, err == nil && f.keys("release") == "dCBa" && f.free(t, "aBd"), "%v, %v", err, f.keys("release"))
	})
}

// TestResumeOfASetFails: a lock that another holder has taken is lost for good; after any other error a resume can be
// tried again. A lock that was resumed before another couldn't be is released with the set, and no other's lock is.
func TestResumeOfASetFails(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, _ := f.suspended(t, "aBC", "BC")
		f.disturb(failing("resume", "", errors.New("input/output error")))
		err := l.Resume(t.Context())
		assert.That(t, err != nil && !l.Lost().Definite, "%v, %v", err, l.Lost())
		f.disturb(nil)
		f.breakLock(t, "C")
		theirs := f.take(t, "C", 24*time.Hour)
		assert.Is(t, l.Resume(t.Context()), replock.ErrLost)
		lost := loss(l)
		assert.That(t, lost != nil && lost.Definite && lost.Key == "fake:C", "lost: %v", lost)
		err = l.Release(t.Context())
		assert.That(t, err == nil && f.free(t, "aB"), "released: %v", err)
		assert.That(t, f.Backend.Renew(t.Context(), theirs) == nil, "it released another's lock")
		n := len(f.asked("renew"))
		time.Sleep(time.Hour)
		assert.That(t, len(f.asked("renew")) == n, "a lock is renewed after its release")
	})
}

// TestLossEndsAResume: the definite loss of a lock ends the resume of another one.
func TestLossEndsAResume(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		s := f.set(0, "Bc")
		l, err := s.Acquire(t.Context(), (&record{}).observe)
		assert.OK(t, err)
		f.lose(l, "B")
		f.breakLock(t, "c")
		f.slow = time.Hour
		s.members[0].(*other).files = true // so that only the loss can end the resume
		began := f.clock.Elapsed()
		err = l.Resume(t.Context())
		lost := loss(l)
		assert.That(t, err != nil && lost != nil && lost.Definite && lost.Key == "fake:c", "%v, lost %v", err, lost)
		took := f.clock.Elapsed() - began
		assert.That(t, took <= 20*time.Second, "after %v", took)
		f.slow = 0
		_ = l.Release(t.Context())
		assert.That(t, f.free(t, "B"), "B is left")
	})
}

// TestSilentReleaseHoldsUpNoOther: if one system is silent at the release, the other locks are free soon, and none of
// them is lost meanwhile.
func TestSilentReleaseHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		l, r := f.holds(t, "abcd")
		f.disturb(func(what, key string) error {
			if key == "c" || key == "d" {
				return locking.ErrUnreachable
			}
			return nil
		})
		time.Sleep(l.Deadline() - f.clock.Elapsed() - lease.MaxDelay/2)
		start := f.clock.Elapsed()
		time.AfterFunc(3*lease.MaxDelay, func() {
			assert.That(t, f.free(t, "a"), "a isn't free")
		})
		err := l.Release(t.Context())
		assert.Is(t, err, locking.ErrUnreachable)
		took := f.clock.Elapsed() - start
		assert.That(t, took <= maxTry+lease.MaxDelay && len(r.of(replock.EventLost)) == 0, "all released after %v, lost %v", took, r.of(replock.EventLost))
	})
}

// TestLeft: the rest of a wait isn't negative, and the rest of a wait without an end has no end.
func TestLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		time.Sleep(time.Hour)
		for wait, want := range map[time.Duration]time.Duration{0: 0, time.Minute: 0, 2 * time.Hour: time.Hour, replock.Forever: replock.Forever} {
			assert.Equal(t, f.set(wait, "a").left(0), want, "--wait %v", wait)
		}
	})
}
