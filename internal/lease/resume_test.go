package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

// owner is a lock whose Reacquire calls a function, and which counts its calls.
type owner struct {
	*Term
	name      string
	reacquire func(context.Context) (Owner, error)
	free      func() error
	on        *Lease // whose owner it must be in Resumed, or nil
	t         *testing.T
	frees     int
	resumed   int
}

func (o *owner) About() About                { return About{ID: o.name, Key: o.name} }
func (o *owner) Check(context.Context) error { return nil }

func (o *owner) Free(ctx context.Context) error {
	o.frees++
	assert.OK(o.t, ctx.Err())
	select {
	case <-o.Done():
	default:
		o.t.Errorf("%s is freed during its renewals", o.name)
	}
	if o.free != nil {
		return o.free()
	}
	return nil
}

func (o *owner) Reacquire(ctx context.Context) (Owner, error) { return o.reacquire(ctx) }

func (o *owner) Resumed() {
	o.resumed++
	if o.on != nil {
		assert.That(o.t, o.on.Owner() == Owner(o), "resumed before the lease has its owner")
	}
}

// holds returns an owner whose lock is held, on a store that renews.
func holds(t *testing.T, name string) *owner {
	return &owner{Term: begun(terms(func(context.Context) error { return nil })), name: name, t: t}
}

// loses returns an owner whose lock was lost.
func loses(t *testing.T, name string, definite bool) *owner {
	o := holds(t, name)
	o.lose(errors.New(name+" is lost"), definite)
	return o
}

func (o *owner) lose(err error, definite bool) {
	o.Terms.Loss = func(bool, error) Loss { return Loss{Err: err, Definite: definite} }
	o.Fail(err)
}

// fails is a Reacquire that must not be called.
func (o *owner) mustNotReacquire() *owner {
	o.reacquire = func(context.Context) (Owner, error) {
		o.t.Errorf("%s was acquired again", o.name)
		return nil, errDown
	}
	return o
}

// TestResume: Resume continues the lease with the new owner. A failure leaves the lease as it was, so that Resume can be
// called again.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := loses(t, "old", false), holds(t, "next")
		l := Hold(old)
		next.on = l
		old.reacquire = func(context.Context) (Owner, error) { return nil, errDown }
		for range 2 {
			assert.Is(t, l.Resume(t.Context()), errDown)
			assert.That(t, l.Owner() == Owner(old) && l.Lost() != nil, "the lease has another owner")
		}
		old.reacquire = func(context.Context) (Owner, error) { return next, nil }
		assert.OK(t, l.Resume(t.Context()))
		assert.That(t, l.Lost() == nil && l.Context() == next.Context() && next.resumed == 1 && Of(next.Context()) == l, "not resumed")
		old.mustNotReacquire()
		next.mustNotReacquire()
		assert.That(t, l.Resume(t.Context()) != nil, "a held lock was resumed")
		assert.OK(t, l.Release(t.Context()))
		assert.That(t, old.frees == 0 && next.frees == 1, "freed %d and %d times", old.frees, next.frees)
		assert.Is(t, l.Resume(t.Context()), fault.Released)
	})
}

// TestReleaseOfNoCaller: Release frees the lock though its context has ended.
func TestReleaseOfNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := holds(t, "a") // its Free must get a context that hasn't ended
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.OK(t, Hold(o).Release(ctx))
		assert.Equal(t, o.frees, 1)
	})
}

// TestNoResume: a definite loss is final.
func TestNoResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Hold(loses(t, "old", true).mustNotReacquire())
		assert.Is(t, l.Resume(t.Context()), l.Lost().Err)
	})
}

// TestNoResumeInARelease: a Resume that begins while a release begins acquires nothing.
func TestNoResumeInARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := loses(t, "old", false).mustNotReacquire()
		o.release() // as Release does first
		assert.Is(t, Hold(o).Resume(t.Context()), fault.Released)
	})
}

// TestResumeTwice: a second Resume returns at once, while the first goes on.
func TestResumeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := loses(t, "old", false), holds(t, "next")
		l, calls := Hold(old), 0
		old.reacquire = func(context.Context) (Owner, error) {
			calls++
			time.Sleep(time.Minute)
			return next, nil
		}
		resumed := make(chan error)
		go func() { resumed <- l.Resume(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		err := l.Resume(t.Context())
		assert.That(t, err != nil && !errors.Is(err, fault.Released) && time.Since(start) == 0 && calls == 1, "%v after %v, %d calls", err, time.Since(start), calls)
		assert.OK(t, <-resumed)
		next.lose(errDown, false)
		next.reacquire = func(context.Context) (Owner, error) { return holds(t, "last"), nil }
		assert.OK(t, l.Resume(t.Context()))
		assert.Equal(t, l.About().ID, "last")
		assert.OK(t, l.Release(t.Context()))
	})
}

// TestReleaseEndsAResume: Release ends a Resume that is under way, waits for it, and frees the owner that it left. A
// second Release waits for the first, and returns the same error.
func TestReleaseEndsAResume(t *testing.T) {
	for _, succeeds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			old, next := loses(t, "old", false), holds(t, "next")
			failure := errors.New("still there")
			old.free = func() error { return failure }
			next.free = old.free
			l := Hold(old)
			old.reacquire = func(ctx context.Context) (Owner, error) {
				<-ctx.Done()
				assert.That(t, context.Cause(ctx) == fault.Released && old.Releasing(), "%v", context.Cause(ctx))
				time.Sleep(time.Second) // its requests end
				assert.Is(t, context.Cause(old.Context()), old.Lost().Err)
				if succeeds {
					return next, nil
				}
				return nil, context.Cause(ctx)
			}
			resumed := make(chan error)
			go func() { resumed <- l.Resume(context.Background()) }()
			synctest.Wait()
			released, start := make(chan error, 1), time.Now()
			go func() { released <- l.Release(t.Context()) }()
			synctest.Wait()
			assert.That(t, l.Left() == 0 && old.frees == 0, "freed before the resume has ended")
			assert.Is(t, l.Resume(t.Context()), fault.Released)
			assert.Is(t, l.Release(t.Context()), failure)
			assert.That(t, time.Since(start) == time.Second, "the second release returned after %v", time.Since(start))
			assert.Is(t, <-released, failure)
			err := <-resumed
			assert.That(t, succeeds == (err == nil), "%v", err)
			freed, kept := old, next
			if succeeds {
				freed, kept = next, old
				assert.Is(t, context.Cause(next.Context()), fault.Released)
			}
			assert.That(t, freed.frees == 1 && kept.frees == 0, "freed %d and %d times", freed.frees, kept.frees)
			assert.That(t, l.Left() == 0, "%v left", l.Left())
			kept.Release()
		})
	}
}

// TestResumeEndsWithItsParent: a Resume ends with the parent of the lease's context, even if that has ended before.
func TestResumeEndsWithItsParent(t *testing.T) {
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gone := errors.New("the parent")
			parent, end := context.WithCancelCause(t.Context())
			o := loses(t, "old", false)
			o.Parent = parent
			l := Hold(o)
			o.reacquire = func(ctx context.Context) (Owner, error) {
				if before {
					assert.Is(t, context.Cause(ctx), gone)
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			if before {
				end(gone)
			} else {
				time.AfterFunc(time.Second, func() { end(gone) })
			}
			assert.Is(t, l.Resume(context.Background()), gone)
		})
	}
}

// pair returns a set of two leases: the first is lost, the second is held.
func pair(t *testing.T) (s *Set, a, b *owner) {
	a, b = loses(t, "a", false), holds(t, "b")
	return Join(nil, Hold(a), Hold(b)), a, b
}

// TestSecondLossInAResume: the loss of another lease ends the resume of the first one, and is its error. Then both are
// resumed, unless the loss is definite.
func TestSecondLossInAResume(t *testing.T) {
	for _, definite := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, a, b := pair(t)
			work, loss := s.Context(), errors.New("b is lost")
			time.AfterFunc(time.Second, func() { b.lose(loss, definite) })
			a.reacquire = func(ctx context.Context) (Owner, error) {
				<-ctx.Done()
				assert.That(t, !errors.Is(context.Cause(ctx), loss), "the resume looks lost: %v", context.Cause(ctx))
				return nil, context.Cause(ctx)
			}
			start := time.Now()
			assert.Is(t, s.Resume(t.Context()), loss)
			assert.That(t, time.Since(start) == time.Second && a.Lost() != nil, "after %v", time.Since(start))
			a.reacquire = func(context.Context) (Owner, error) { return holds(t, "a again"), nil }
			b.reacquire = func(context.Context) (Owner, error) { return holds(t, "b again"), nil }
			err := s.Resume(t.Context())
			if definite {
				assert.Is(t, err, loss)
				assert.That(t, s.Context() == work && work.Err() != nil, "the context lives again")
			} else {
				assert.OK(t, err)
				assert.That(t, s.Lost() == nil && s.Context().Err() == nil && work.Err() != nil && s.leases[0].About().ID == "a again" && s.leases[1].About().ID == "b again", "%v", s.Lost())
			}
			assert.OK(t, s.Release(t.Context()))
		})
	}
}

// TestNothingIsResumedBesideADefiniteLoss: a set with a definite loss acquires none of its locks again.
func TestNothingIsResumedBesideADefiniteLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := loses(t, "a", false), loses(t, "b", true), loses(t, "c", true)
		s := Join(nil, Hold(a.mustNotReacquire()), Hold(b.mustNotReacquire()), Hold(c.mustNotReacquire()))
		assert.Is(t, s.Resume(t.Context()), b.Lost().Err)
		assert.OK(t, s.Release(t.Context()))
	})
}

// TestLostAgainInAResume: a lease that is lost again, while another one is resumed, is resumed again.
func TestLostAgainInAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := loses(t, "a", false), loses(t, "b", false)
		s, next := Join(nil, Hold(a), Hold(b)), holds(t, "next")
		a.reacquire = func(context.Context) (Owner, error) { return next, nil }
		next.reacquire = func(context.Context) (Owner, error) { return holds(t, "last"), nil }
		b.reacquire = func(context.Context) (Owner, error) {
			next.lose(errDown, false)
			return holds(t, "b again"), nil
		}
		assert.OK(t, s.Resume(t.Context()))
		assert.That(t, s.Lost() == nil && s.Context().Err() == nil && s.leases[0].About().ID == "last", "%v, %v", s.Lost(), s.Context().Err())
		s.leases[1].Owner().(*owner).lose(errLoss, true)
		synctest.Wait()
		assert.Is(t, context.Cause(s.Context()), errLoss)
		assert.OK(t, s.Release(t.Context()))
	})
}

// TestResumeOfASetFails: the error of a resume is that of the lease that failed, if no other lease is lost meanwhile.
func TestResumeOfASetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := pair(t)
		a.reacquire = func(context.Context) (Owner, error) { return nil, errDown }
		assert.Is(t, s.Resume(t.Context()), errDown)
		b.lose(errLoss, false) // no resume is under way any more
		assert.Is(t, s.Lost().Err, a.Lost().Err)
		assert.OK(t, s.Release(t.Context()))
	})
}
