package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
)

// TestReleaseOfASet: the leases are released in the reverse order. A release that hangs delays the next one by
// MaxDelay, and the set's release waits for it. Each release is reported to the set's maker, and each error is in the
// result. A lease that waits for its turn isn't lost, though its deadline passes.
func TestReleaseOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, order, mu := time.Now(), []string(nil), sync.Mutex{}
		with := terms(func(context.Context) error { return errDown })
		with.Clock.(*leapclock.Clock).Leap.Store(int64(time.Hour))
		with.Sent = time.Hour - deadline + MaxDelay/2 // so it would be lost before its turn
		first := &owner{Term: begun(with), name: "first", t: t}
		slow, last := holds(t, "slow"), holds(t, "last")
		failed := map[*owner]error{first: errors.New("one"), slow: errors.New("two")}
		for _, o := range []*owner{first, slow, last} {
			o.free = func() error {
				mu.Lock()
				order = append(order, o.name+" "+time.Since(start).String())
				mu.Unlock()
				if o == slow {
					time.Sleep(10 * MaxDelay)
				}
				return failed[o]
			}
		}
		reports := atomic.Int32{}
		s := Join(func() { reports.Add(1) }, Hold(first), Hold(slow), Hold(last))
		assert.Equal(t, s.IDs(), []string{"first", "slow", "last"})
		err := s.Release(t.Context())
		assert.That(t, errors.Is(err, failed[first]) && errors.Is(err, failed[slow]), "%v", err)
		assert.That(t, slices.Equal(order, []string{"last 0s", "slow 0s", "first 1s"}) && time.Since(start) == 10*MaxDelay, "%q, %v", order, time.Since(start))
		assert.That(t, reports.Load() == 3 && first.Lost() == nil, "%d reports, lost: %v", reports.Load(), first.Lost())
	})
}

// connected is a lock that dies with its connection, and that stores the result of the work.
type connected struct {
	*owner
	about About
}

func (c connected) About() About { return c.about }

// conn is a connection.
type conn struct{ syscall.Conn }

// TestOfSome: only some locks have a connection, or store the result of the work.
func TestOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var results []bool
		c := conn{}
		s := Join(nil, hold(0, 0, nil, nil),
			Hold(connected{holds(t, "a"), About{Connection: func() syscall.Conn { return nil }}}),
			Hold(connected{holds(t, "b"), About{Connection: func() syscall.Conn { return c }, Finish: func(ok bool) { results = append(results, ok) }}}))
		assert.Equal(t, s.Connections(), []syscall.Conn{c})
		s.Finish(true)
		s.Finish(false)
		assert.Equal(t, results, []bool{true, false})
		assert.That(t, Of(t.Context()) == nil && Of(s.leases[0].Context()) == s.leases[0], "the lease of a context")
		assert.OK(t, s.Release(t.Context()))
	})
}

// TestOwnFunctions: a lease calls the owner's Attempt, Jitter, Watch and Failed in place of its own, reports each
// renewal, and reports the loss once.
func TestOwnFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := terms(nil)
		var renewed []time.Duration
		extended, losses, failures, watches := 0, 0, 0, 0
		with.Attempt = func(context.Context, bool) (refresh.Renewal, error) {
			if now := with.Clock.Elapsed(); len(renewed) < 3 {
				renewed = append(renewed, now)
				return refresh.Renewal{Sent: now}, nil
			}
			return refresh.Renewal{}, errDown
		}
		with.Jitter = func(time.Duration) time.Duration { return time.Second }
		with.Watch = func(ctx context.Context) { watches++; <-ctx.Done(); watches++ }
		with.Extended = func() { extended++ }
		with.Failed = func(int, bool, error) { failures++ }
		with.Lost = func(error) { losses++ }
		term := begun(with)
		<-term.Context().Done()
		synctest.Wait()
		assert.Equal(t, renewed, []time.Duration{29 * time.Second, 58 * time.Second, 87 * time.Second})
		assert.That(t, extended == 3 && failures == 3 && losses == 1 && watches == 2, "%d, %d, %d, %d", extended, failures, losses, watches)
		assert.Equal(t, with.Clock.Elapsed(), 87*time.Second+deadline)
	})
}

// TestStep: a lease without a Watch is renewed within a clock.Tick after a step of the wall clock, and then each
// clock.Tick until a renewal is answered. Without a step it isn't renewed.
func TestStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := terms(nil)
		c, mu := with.Clock.(*leapclock.Clock), sync.Mutex{}
		up, renewed := false, []time.Duration(nil)
		with.Renewal = func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			renewed = append(renewed, c.Elapsed())
			if !up {
				return errDown
			}
			return nil
		}
		term := begun(with)
		after := func(d time.Duration, comesUp bool) []time.Duration {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			up = comesUp
			return slices.Clone(renewed)
		}
		all := after(15*time.Second+time.Millisecond, false)
		assert.That(t, len(all) == 0, "renewed without a step: %v", all)
		c.Step.Store(int64(time.Hour))
		all = after(3*clock.Tick, true)
		assert.Equal(t, all, []time.Duration{15*time.Second + clock.Tick, 15*time.Second + 2*clock.Tick, 15*time.Second + 3*clock.Tick})
		all = after(10*time.Second, true)
		assert.That(t, len(all) == 4 && term.Lost() == nil, "renewed after an answer: %v", all)
		term.Release()
	})
}

// TestTimes: Left and Times count to the deadline, and stop with the first loss, which is at the deadline at the latest.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := func(o *owner, held, left, rest time.Duration) {
			t.Helper()
			h, l := o.Times()
			assert.That(t, h == held && l == left && o.Left() == rest, "held %v, %v and %v left", h, l, o.Left())
		}
		o := holds(t, "a")
		time.Sleep(10 * time.Second)
		times(o, 10*time.Second, deadline-10*time.Second, deadline-10*time.Second)
		o.lose(errLoss, false)
		time.Sleep(5 * time.Second)
		times(o, 10*time.Second, deadline-15*time.Second, 0)
		o.Lose(Loss{Err: errLoss, Definite: true}) // a resume has found another loss
		times(o, 10*time.Second, deadline-15*time.Second, 0)

		with := terms(func(context.Context) error { return nil })
		c := with.Clock.(*leapclock.Clock)
		o = &owner{Term: begun(with), name: "b", t: t}
		c.Leap.Store(int64(time.Hour)) // a suspend, which ends now
		times(o, deadline, deadline-time.Hour, 0)
		<-o.Context().Done()
		h, _ := o.Times()
		assert.Equal(t, h, deadline)
	})
}
