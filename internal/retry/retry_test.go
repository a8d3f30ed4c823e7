package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
)

var (
	errDown  = errors.New("down")
	errFinal = errors.New("final")
	errLate  = fault.As(fault.Unreachable, errors.New("late"))
	errBoth  = fault.Join(errDown, errLate)
)

// TestDo: Do sends a request until it succeeds, fails for good, or the budget or the context ends. The
// pauses double. Failed gets the error of each send before a pause, and Do returns within the time that it gets.
func TestDo(t *testing.T) {
	for name, c := range map[string]struct {
		results []error // the last one counts for all further sends
		takes   time.Duration
		ends    time.Duration // of the context
		jitter  func(time.Duration) time.Duration
		err     error
		sent    []time.Duration
	}{
		"succeeds":           {results: []error{nil}, sent: []time.Duration{0}},
		"succeeds at last":   {results: []error{errDown, errDown, nil}, sent: []time.Duration{0, 200, 600}},
		"fails for good":     {results: []error{errDown, errFinal}, err: errFinal, sent: []time.Duration{0, 200}},
		"uses up its budget": {results: []error{errDown}, err: errDown, sent: []time.Duration{0, 200, 600, 1400, 3000}},
		"waits otherwise": {
			results: []error{errDown}, err: errDown, sent: []time.Duration{0, 1000, 3000},
			jitter: func(d time.Duration) time.Duration { return 5 * d },
		},
		"takes its time": {results: []error{errDown}, takes: 4 * time.Second, err: errDown, sent: []time.Duration{0, 3450}},
		"begins a send just before the end": {
			results: []error{errDown}, takes: time.Hour, err: errDown, sent: []time.Duration{0, 4950},
			jitter: func(time.Duration) time.Duration { return 1700 * time.Millisecond },
		},
		"ends in a send":      {results: []error{errDown}, takes: time.Second, ends: 4 * time.Second, err: errDown, sent: []time.Duration{0, 1200, 2600}},
		"was answered first":  {results: []error{errDown, errLate}, err: errBoth, sent: []time.Duration{0, 200, 600, 1400, 3000}},
		"is answered last":    {results: []error{errLate, errLate, errLate, errLate, errDown}, err: errDown, sent: []time.Duration{0, 200, 600, 1400, 3000}},
		"is never answered":   {results: []error{errLate}, err: errLate, sent: []time.Duration{0, 200, 600, 1400, 3000}},
		"is refused at last":  {results: []error{errDown, errLate, errFinal}, err: errFinal, sent: []time.Duration{0, 200, 600}},
		"ends with its pause": {results: []error{errDown}, ends: 100 * time.Millisecond, err: errDown, sent: []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.ends > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.ends)
					defer cancel()
				}
				clock, latest := leapclock.New(), time.Duration(math.MaxInt64)
				var failed []error
				p := Policy{
					Clock: clock, Budget: 5 * time.Second, Timeout: 3 * time.Second, Jitter: c.jitter,
					Permanent: func(err error) bool { return err == errFinal },
					Failed: func(err error, left time.Duration) {
						failed, latest = append(failed, err), min(latest, clock.Elapsed()+left)
						assert.That(t, c.ends == 0 || clock.Elapsed()+left <= c.ends+LastWords, "%v are left after the context", left)
					},
				}
				var sent []time.Duration
				n, err := Do(ctx, p, func(timeout time.Duration) (int, error) {
					at := clock.Elapsed()
					if want := max(min(p.Timeout, p.Budget-at), leastTimeout); timeout != want {
						t.Errorf("at %v: a timeout of %v, want %v", at, timeout, want)
					}
					sent = append(sent, at/time.Millisecond)
					time.Sleep(min(c.takes, timeout+LastWords))
					return len(sent), c.results[min(len(sent), len(c.results))-1]
				})
				if fmt.Sprint(err) != fmt.Sprint(c.err) || err != nil && fault.Of(err) != fault.Of(c.err) || n != len(c.sent) || !slices.Equal(sent, c.sent) {
					t.Errorf("result %d, %v, sent at %v ms; want %v, %v", n, err, sent, c.err, c.sent)
				}
				assert.That(t, len(failed) >= len(sent)-1, "Failed was called %d times", len(failed))
				for i, err := range failed {
					assert.Is(t, err, c.results[min(i, len(c.results)-1)])
				}
				assert.That(t, clock.Elapsed() <= latest, "returned at %v, and Failed said %v at the latest", clock.Elapsed(), latest)
			})
		})
	}
}

// TestOnce: Once returns the answer of a send, and reports whether it is late. It waits no longer than LastWords for a
// send that ignores its context. After an end of the caller's context it sends nothing.
func TestOnce(t *testing.T) {
	errCaller := errors.New("the caller has ended")
	for name, c := range map[string]struct {
		ends, takes time.Duration // of the caller's context; of the send, whatever its context
		late        bool
		err         error
		after       time.Duration
	}{
		"in time":                  {time.Hour, 2 * time.Second, false, errDown, 2 * time.Second},
		"late":                     {time.Hour, 3100 * time.Millisecond, true, errDown, 3100 * time.Millisecond},
		"silent":                   {time.Hour, time.Minute, true, ErrSilent, 3*time.Second + LastWords},
		"late after the caller":    {time.Second, 1100 * time.Millisecond, true, errDown, 1100 * time.Millisecond},
		"silent after the caller":  {time.Second, time.Minute, true, errCaller, time.Second + LastWords},
		"not sent, without caller": {-1, time.Minute, false, errCaller, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.ends < 0 {
					cancel(errCaller)
				}
				time.AfterFunc(c.ends, func() { cancel(errCaller) })
				sent, start := 0, time.Now()
				_, late, err := Once(ctx, 3*time.Second, func(ctx context.Context) (int, error) {
					sent++
					end, _ := ctx.Deadline()
					assert.Equal(t, end.Sub(start), 3*time.Second)
					time.Sleep(c.takes)
					return sent, errDown
				})
				assert.That(t, late == c.late && err == c.err, "late: %t, %v", late, err)
				assert.Equal(t, time.Since(start), c.after)
				synctest.Wait()
				assert.Equal(t, sent > 0, c.ends > 0)
				time.Sleep(2 * time.Hour) // until the send and the timer have ended
			})
		})
	}
}
