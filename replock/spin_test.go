package replock

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// countedClock counts the waits of a holder.
type countedClock struct {
	*machineClock
	waits atomic.Int64
}

func (c *countedClock) After(d time.Duration) <-chan time.Time {
	c.waits.Add(1)
	return c.machineClock.After(d)
}

// TestHoldersDontSpin: however requests fail, and whatever the clock shows, a holder waits at most 20 times a second and
// sends at most 10 requests a second, until it loses the lock.
func TestHoldersDontSpin(t *testing.T) {
	failing := func(err error) hookstore.Before {
		return func(context.Context, hookstore.Request) error { return err }
	}
	for name, fault := range map[string]struct {
		request hookstore.Before
		skew    time.Duration
	}{
		"none": {},
		"slow": {request: func(ctx context.Context, _ hookstore.Request) error {
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return store.ErrUnreachable
			}
		}},
		"silent":               {request: func(ctx context.Context, _ hookstore.Request) error { <-ctx.Done(); return store.ErrUnreachable }},
		"refused connections":  {request: failing(store.ErrUnreachable)},
		"closed connections":   {request: failing(io.ErrUnexpectedEOF)},
		"refused permission":   {request: failing(store.ErrPermission)},
		"a clock set forward":  {skew: time.Hour},
		"a clock set back":     {skew: -time.Hour},
		"a clock set, no link": {request: failing(store.ErrUnreachable), skew: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
				c := &countedClock{}
				m := w.machine(func(o *Options) {
					c.machineClock = o.Clock.(*machineClock)
					o.Clock = c
				})
				k := m.takes(t, mode)
				m.hooks.Count()
				c.waits.Store(0)
				began := time.Now()
				m.hooks.Before(fault.request)
				c.setSkew(fault.skew)
				select {
				case <-k.Context().Done():
				case <-time.After(5 * time.Minute):
				}
				m.hooks.Before(nil)
				lasted := time.Since(began).Seconds()
				requests, _ := m.hooks.Count()
				waits := float64(c.waits.Load())
				t.Logf("%.0f s: %.1f waits and %.2f requests a second", lasted, waits/lasted, float64(requests)/lasted)
				assert.That(t, lasted > 1, "the lock lasted %v s", lasted)
				assert.That(t, waits/lasted < 20, "%.1f waits a second", waits/lasted)
				assert.That(t, float64(requests)/lasted < 10, "%.1f requests a second", float64(requests)/lasted)
			})
		})
	}
}
