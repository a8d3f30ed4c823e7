package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

// stub is a lock whose looks and renewals return an error.
type stub struct {
	*Term
	err error
}

func (s stub) About() About                             { return About{Key: "stub"} }
func (s stub) Check(context.Context) error              { return s.err }
func (s stub) Free(context.Context) error               { return nil }
func (s stub) Reacquire(context.Context) (Owner, error) { return nil, errDown }
func (s stub) Resumed()                                 {}

// hold returns the lease of a stub, that was asked for and seen at times after now.
func hold(sent, seen time.Duration, lost *Loss, err error) *Lease {
	with := terms(func(context.Context) error { return err })
	with.Sent, with.Seen = with.Sent+sent, clock.Reading{Elapsed: seen}
	term := begun(with)
	if lost != nil {
		term.Lose(*lost)
	}
	return Hold(stub{term, err})
}

// TestNotify: each renewal and each look of any lock is reported, and no report waits for its receiver.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := hold(0, 0, nil, nil), hold(0, 0, nil, nil)
		changed := make(chan struct{}, 1)
		s := Join(nil, a, b)
		s.Notify(changed)
		reported := func() bool {
			synctest.Wait()
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		assert.That(t, !reported(), "before any change")
		assert.OK(t, s.Renew(t.Context()))
		assert.That(t, reported() && !reported(), "two renewals are one report")
		b.Owner().term().Saw(clock.Reading{})
		assert.That(t, reported(), "a look isn't reported")
		b.Owner().term().extended(time.Hour)
		assert.That(t, reported() && b.Deadline() == time.Hour, "a deadline isn't reported")
		assert.OK(t, s.Release(t.Context()))
	})
}

// TestOfAll: a set's deadline is the earliest, and its look the oldest, whatever the order. Its loss is
// that of any lock, and a definite one comes first. A look and a renewal are of all, and return each error.
func TestOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := errors.New("first"), errors.New("last")
		maybe, sure := Loss{Err: errors.New("maybe")}, Loss{Err: last, Definite: true}
		a, b, c := hold(3, 12*time.Hour, nil, first), hold(2, 11*time.Hour, &maybe, errDown), hold(4, 10*time.Hour, &sure, last)
		for _, leases := range [][]*Lease{{a, b, c}, {c, b, a}, {b, c, a}} {
			s := Join(nil, leases...)
			assert.That(t, s.Deadline() == b.Deadline() && s.Seen() == c.Seen() && s.Lost().Err == last, "deadline %v, seen %v, lost %v", s.Deadline(), s.Seen(), s.Lost())
			for _, f := range []func(context.Context) error{s.Check, s.Renew} {
				err := f(t.Context())
				assert.That(t, errors.Is(err, first) && errors.Is(err, last), "%v", err)
			}
		}
		assert.Is(t, Join(nil, a, b).Lost().Err, maybe.Err)
		held := Join(nil, hold(0, 0, nil, nil), hold(0, 0, nil, nil))
		assert.That(t, held.Lost() == nil && held.Check(t.Context()) == nil && held.Renew(t.Context()) == nil, "held: %v", held.Lost())
		assert.Is(t, Join(nil, a, b, c).Release(t.Context()), nil)
		assert.Is(t, held.Release(t.Context()), nil)
	})
}

// touched is a lock that reports each use of its Term.
type touched struct {
	stub
	touch func()
}

func (o touched) term() *Term { o.touch(); return o.stub.term() }

// TestSetEndsFirst: the release of a set ends its context before it touches a lock, so that no work goes on beside the
// next holder.
func TestSetEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		touch := func() {}
		o := touched{stub{begun(terms(func(context.Context) error { return nil })), nil}, func() { touch() }}
		s := Join(nil, Hold(o), hold(0, 0, nil, nil))
		touch = func() { assert.Is(t, context.Cause(s.Context()), fault.Released) }
		assert.OK(t, s.Release(t.Context()))
		s.begin() // as a resume does that ends meanwhile
		assert.Is(t, context.Cause(s.Context()), fault.Released)
	})
}
