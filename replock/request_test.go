package replock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/retry"
	"github.com/repolock/repolock/store/mem"
)

// TestLastWords: if the store says within a moment of a context's end why a request failed,
// the caller gets that error. A store that ignores the context delays the caller for no longer
// than that.
func TestLastWords(t *testing.T) {
	const timeout = time.Second
	words, why := errors.New("the disk is asleep"), errors.New("interrupted")
	says := func(ctx context.Context) error { return errors.Join(words, ctx.Err()) }
	for name, c := range map[string]struct {
		late     time.Duration // after the context's end
		says     func(context.Context) error
		canceled bool // by the caller, with a cause
		want     []error
		took     time.Duration
	}{
		"it says why":                 {retry.LastWords / 2, says, false, []error{words, context.DeadlineExceeded}, timeout + retry.LastWords/2},
		"it did it after all":         {retry.LastWords / 2, func(context.Context) error { return nil }, false, nil, timeout + retry.LastWords/2},
		"it says nothing":             {time.Hour, says, false, []error{context.DeadlineExceeded}, timeout + retry.LastWords},
		"canceled, and it says why":   {retry.LastWords / 2, says, true, []error{words, why}, timeout/2 + retry.LastWords/2},
		"canceled, and says no more":  {retry.LastWords / 2, context.Context.Err, true, []error{why}, timeout/2 + retry.LastWords/2},
		"canceled, and done":          {retry.LastWords / 2, func(context.Context) error { return nil }, true, nil, timeout/2 + retry.LastWords/2},
		"canceled, it says nothing":   {time.Hour, says, true, []error{why}, timeout/2 + retry.LastWords},
		"canceled, refused meanwhile": {retry.LastWords / 2, func(context.Context) error { return words }, true, []error{words}, timeout/2 + retry.LastWords/2},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.canceled {
				time.AfterFunc(timeout/2, func() { cancel(why) })
			}
			start := time.Now()
			_, err := once(ctx, timeout, "put k", func(ctx context.Context) (nothing, error) {
				<-ctx.Done()
				time.Sleep(c.late)
				return nothing{}, c.says(ctx)
			})
			if took := time.Since(start); took != c.took {
				t.Errorf("%s: took %v, want %v", name, took, c.took)
			}
			if (err == nil) != (len(c.want) == 0) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %q isn't %q", name, err, want)
				}
			}
			if !c.canceled && err != nil && !strings.HasPrefix(err.Error(), "no answer within 1s: put k: ") {
				t.Errorf("%s: %q", name, err)
			}
			time.Sleep(c.late) // a later message is lost
		})
	}
}

// TestNothingSentAfterTheEnd: no request is sent for a caller whose context has ended, so that
// the caller isn't delayed once for each request.
func TestNothingSentAfterTheEnd(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := once(ctx, time.Second, "put k", func(context.Context) (nothing, error) {
		t.Error("sent")
		return nothing{}, nil
	})
	if err != why {
		t.Errorf("%v, want %v", err, why)
	}
}

// TestHangingRequestLeavesTimeForAnother: the budget of a request has time for a second send on a
// slow store if the first is never answered.
func TestHangingRequestLeavesTimeForAnother(t *testing.T) {
	for ttl, slow := range map[time.Duration]time.Duration{
		MinTTL:         400 * time.Millisecond,
		DefaultTTL:     2 * time.Second,
		24 * time.Hour: 2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newWorld(t, mem.Options{}).machine(func(o *Options) { o.TTL = ttl })
			sends := 0
			_, err := repeat(t.Context(), m.Locker, "put k", func(ctx context.Context) (nothing, error) {
				answered := make(<-chan time.Time)
				if sends++; sends > 1 {
					answered = time.After(slow)
				}
				select {
				case <-answered:
					return nothing{}, nil
				case <-ctx.Done():
					return nothing{}, ctx.Err()
				}
			})
			if err != nil {
				t.Errorf("ttl %v: %v after %d sends", ttl, err, sends)
			}
		})
	}
}
