package lease

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
)

var (
	errDown = errors.New("down")
	errLoss = errors.New("in the owner's words")
)

const deadline = 55 * time.Second // of a ttl of a minute

// terms are of a lease that begins now, which a test's function renews.
func terms(renew func(context.Context) error) Terms {
	c := leapclock.New()
	return Terms{
		Schedule: refresh.ForTTL(time.Minute), Clock: c, Sent: c.Elapsed(), Seen: clock.Read(c), Parent: context.Background(), Drain: 8 * time.Second,
		Renewal: renew, Loss: func(bool, error) Loss { return Loss{Err: errLoss} },
	}
}

// begun returns a Term that has begun.
func begun(t Terms) *Term {
	term := New(t)
	term.Begin()
	return term
}

// TestLostInTime: a lease that isn't renewed ends at its deadline, though the request hangs whatever its context
// says. Its owner is told the loss before the context ends.
func TestLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(context.Context) error { time.Sleep(time.Hour); return nil }
		with := terms(hangs)
		var term *Term
		with.Lost = func(err error) {
			assert.That(t, err == errLoss && term.Lost().Err == errLoss && term.Context().Err() == nil, "%v, %v", err, term.Context().Err())
		}
		term = New(with)
		term.Begin()
		<-term.Context().Done()
		assert.Equal(t, with.Clock.Elapsed()-with.Sent, deadline)
		assert.Is(t, context.Cause(term.Context()), errLoss)
		held, left := term.Times()
		assert.That(t, held == deadline && left == 0 && term.Left() == 0, "held for %v, %v left", held, left)
		assert.Is(t, term.Renew(t.Context()), errLoss)
		time.Sleep(2 * time.Hour)
	})
}

// TestLossOfAnother: a caller of Renew whose context ends with the loss of another lock gets its error at once, and the
// lease goes on. One that finds the loss of this lock gets that when the lease's context has ended.
func TestLossOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		term := begun(terms(func(context.Context) error {
			time.Sleep(time.Second)
			if lost.Load() {
				return fault.New(fault.HandleLost, "broken")
			}
			return nil
		}))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fault.New(fault.HandleLost, "another lock"))
		for range 100 {
			err := term.Renew(ctx)
			assert.That(t, err != nil && err.Error() == "another lock" && term.Lost() == nil, "%v", err)
		}
		time.Sleep(2 * time.Second)
		lost.Store(true)
		assert.Is(t, term.Renew(t.Context()), errLoss)
		assert.Is(t, context.Cause(term.Context()), errLoss)
	})
}

// TestGone: a lock is renewed at once when its system notices a loss. A false alarm is none.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, renewed := make(chan struct{}), []time.Duration(nil)
		var with Terms
		with = terms(func(context.Context) error { renewed = append(renewed, with.Clock.Elapsed()); return nil })
		with.Gone = gone
		term := begun(with)
		time.AfterFunc(7*time.Second, func() { close(gone) })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.That(t, len(renewed) == 1 && renewed[0]-with.Sent == 7*time.Second && term.Lost() == nil, "%v, %v", renewed, term.Lost())
		assert.That(t, term.Deadline()-renewed[0] == deadline && term.Seen().Elapsed == renewed[0], "%v, %v", term.Deadline(), term.Seen())
		term.Release()
	})
}

// TestRelease: the context ends before the renewals do. Release waits for the renewal that is under way, and the loss
// that this finds is one.
func TestRelease(t *testing.T) {
	for _, found := range []error{nil, errDown, fault.HandleLost} {
		synctest.Test(t, func(t *testing.T) {
			with := terms(func(context.Context) error { time.Sleep(5 * time.Second); return found })
			term := begun(with)
			time.Sleep(with.Interval + time.Second)
			time.AfterFunc(time.Second, func() {
				assert.That(t, context.Cause(term.Context()) == fault.Released && term.Releasing(), "%v", context.Cause(term.Context()))
			})
			term.Release()
			assert.Equal(t, with.Clock.Elapsed()-with.Sent, with.Interval+5*time.Second)
			assert.That(t, (term.Lost() != nil) == (found == fault.HandleLost), "found %v, lost: %v", found, term.Lost())
			assert.That(t, term.Renew(t.Context()) != nil && slices.Contains([]error{fault.Released, errLoss}, term.Renew(t.Context())), "renewed")
		})
	}
}
