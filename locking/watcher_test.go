package locking_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/locking"
)

// watched is a backend that notices a loss.
type watched struct {
	*backend
	lost chan struct{}
}

func (w watched) Watch(locking.Handle) <-chan struct{} { return w.lost }

// TestWatcher: a loss that the backend notices ends the function at once, and a false alarm
// doesn't.
func TestWatcher(t *testing.T) {
	for _, certain := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := watched{newBackend(), make(chan struct{})}
			if certain {
				b.renew = func(context.Context) error { return locking.ErrLost }
			}
			begun := time.Now()
			go func() {
				time.Sleep(time.Second)
				close(b.lost)
			}()
			ran, err := locking.GuardAt(t.Context(), b.clock, b, locking.RequireGlobal, "k", ttl, runs(10*time.Second))
			took := time.Since(begun)
			if !ran || errors.Is(err, locking.ErrLost) != certain || (took == time.Second) != certain {
				t.Errorf("lost %v: ran %v, %v, after %v", certain, ran, err, took)
			}
			if len(b.renewed) != 1 || b.renewed[0] != time.Second {
				t.Errorf("lost %v: renewed at %v", certain, b.renewed)
			}
		})
	}
}
