package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// bubble is the time of a synctest bubble.
type bubble struct{ start time.Time }

func (b bubble) Now() time.Time                         { return time.Now() }
func (b bubble) Elapsed() time.Duration                 { return time.Since(b.start) }
func (b bubble) After(d time.Duration) <-chan time.Time { return time.After(d) }

var (
	errDown  = errors.New("down")
	errFinal = errors.New("final")
	errGone  = errors.New("the caller is gone")
)

// TestDo: Do sends a request until it succeeds, fails for good, or the budget or the context ends. The
// pauses double.
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
		"takes its time":      {results: []error{errDown}, takes: 4 * time.Second, err: errDown, sent: []time.Duration{0, 4200}},
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
				clock := bubble{time.Now()}
				p := Policy{
					Clock: clock, Budget: 5 * time.Second, Timeout: 3 * time.Second, Jitter: c.jitter,
					Permanent: func(err error) bool { return err == errFinal },
				}
				var sent []time.Duration
				n, err := Do(ctx, p, func(timeout time.Duration) (int, error) {
					at := clock.Elapsed()
					if want := max(min(p.Timeout, p.Budget-at), leastTimeout); timeout != want {
						t.Errorf("at %v: a timeout of %v, want %v", at, timeout, want)
					}
					sent = append(sent, at/time.Millisecond)
					time.Sleep(c.takes)
					return len(sent), c.results[min(len(sent), len(c.results))-1]
				})
				if err != c.err || n != len(c.sent) || !slices.Equal(sent, c.sent) {
					t.Errorf("result %d, %v, sent at %v ms; want %v, %v", n, err, sent, c.err, c.sent)
				}
			})
		})
	}
}

// TestOnce: Once returns after the timeout and LastWords, even if send ignores its context. It sends
// nothing if the caller's context has ended.
func TestOnce(t *testing.T) {
	const timeout = time.Second
	heeds := func(ctx context.Context) (int, error) { <-ctx.Done(); return 7, ctx.Err() }
	deaf := func(context.Context) (int, error) { time.Sleep(time.Hour); return 7, nil }
	for name, c := range map[string]struct {
		send func(context.Context) (int, error)
		ends time.Duration // of the caller's context, or never
		v    int
		late bool
		err  error
		took time.Duration
	}{
		"answers":            {func(context.Context) (int, error) { return 7, errDown }, -1, 7, false, errDown, 0},
		"has last words":     {func(ctx context.Context) (int, error) { <-ctx.Done(); time.Sleep(LastWords / 2); return 7, errDown }, -1, 7, true, errDown, timeout + LastWords/2},
		"heeds its context":  {heeds, -1, 7, true, context.DeadlineExceeded, timeout},
		"hangs":              {deaf, -1, 0, true, ErrSilent, timeout + LastWords},
		"hangs, caller gone": {deaf, time.Millisecond, 0, true, errGone, time.Millisecond + LastWords},
		"isn't sent":         {func(context.Context) (int, error) { panic("sent") }, 0, 0, false, errGone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				switch {
				case c.ends == 0:
					cancel(errGone)
				case c.ends > 0:
					time.AfterFunc(c.ends, func() { cancel(errGone) })
				}
				began := time.Now()
				v, late, err := Once(ctx, timeout, c.send)
				// If send returns just as its context ends, either is right for late.
				if took := time.Since(began); v != c.v || late != c.late && name != "heeds its context" || err != c.err || took != c.took {
					t.Errorf("result %d, late %t, %v, after %v; want %d, %t, %v, after %v", v, late, err, took, c.v, c.late, c.err, c.took)
				}
				time.Sleep(2 * time.Hour) // until a send that hangs has ended
			})
		})
	}
}

// TestFailedBoundsDo: Do returns within the time that it has passed to Failed, however long a send takes
// and whenever the context ends.
func TestFailedBoundsDo(t *testing.T) {
	for _, takes := range []time.Duration{0, 70 * time.Millisecond, time.Second, 2500 * time.Millisecond, time.Hour} {
		for _, ends := range []time.Duration{time.Hour, 4 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), ends)
				defer cancel()
				clock := bubble{time.Now()}
				failed, latest := 0, time.Duration(0)
				p := Policy{
					Clock: clock, Budget: 5 * time.Second, Timeout: 3 * time.Second, Permanent: func(error) bool { return false },
					Failed: func(_ error, left time.Duration) {
						if bound := clock.Elapsed() + left; failed == 0 || bound < latest {
							latest = bound
						}
						failed++
					},
				}
				_, _ = Do(ctx, p, func(timeout time.Duration) (int, error) {
					v, _, err := Once(ctx, timeout, func(context.Context) (int, error) {
						time.Sleep(takes)
						return 0, errDown
					})
					return v, err
				})
				if now := clock.Elapsed(); failed == 0 || now > latest {
					t.Errorf("sends of %v, context of %v: returned at %v, %d failures said %v at the latest", takes, ends, now, failed, latest)
				}
				time.Sleep(time.Hour) // until the sends have ended
			})
		}
	}
}
