package torture

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
)

// failed returns the error of a client that ended the round.
func failed(ctx context.Context) error {
	f, _ := context.Cause(ctx).(failure)
	return f.error
}

// holder lets one client in.
func (t *trial) holder(ctx context.Context, f Fault) (*contender, error) {
	hold := 2 * t.Lease
	if f.continues() {
		hold += stay
	}
	var env []string
	if f == Clock {
		env = t.faketime(0)
	}
	mode := t.mode("")
	limit := clock.System{}.Elapsed() + t.entry()
	for says := ""; ; {
		c, err := t.launch(0, mode, hold, env...)
		if err != nil {
			return nil, err
		}
		_, err = t.until(ctx, limit-clock.System{}.Elapsed(), func() bool { return c.pid != 0 || t.done(c) })
		switch {
		case err != nil || ctx.Err() != nil:
			return nil, err
		case c.pid != 0:
			return c, nil
		}
		if says == "" || !c.wrapped() {
			says = c.refusal()
		}
		if now := (clock.System{}).Elapsed(); now > limit {
			return nil, notAcquired(0, says)
		}
		_ = clock.Sleep(ctx, clock.System{}, 2*calmHold)
	}
}

// contend is a client that takes the lock over and over.
func (t *trial) contend(ctx context.Context, client int, beside judge.Mode, f Fault) error {
	var env []string
	if f == Clock {
		env = t.faketime(3 * t.Lease)
	}
	for ctx.Err() == nil {
		c, err := t.launch(client, t.mode(beside), stay, env...)
		if err != nil {
			return err
		}
		for over := false; !over && ctx.Err() == nil; {
			select {
			case <-c.ended:
			case <-ctx.Done():
			}
			t.mu.Lock()
			over = t.done(c)
			t.mu.Unlock()
			_ = clock.Sleep(ctx, clock.System{}, t.upTo(calmHold))
		}
	}
	return nil
}

// entered returns when the first client got in after a time, or 0. t.mu is held.
func (t *trial) entered(beside *contender, after time.Duration) (first time.Duration) {
	for c := range maps.Values(t.contenders) {
		if c == beside || c.pid == 0 {
			continue
		}
		i := slices.IndexFunc(c.events, func(e judge.Event) bool { return e.Kind == judge.In })
		if at := c.events[i].At; at > after && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// meets returns for how long the holder's child has written after another got in. t.mu is held.
func (t *trial) meets(holder *contender) time.Duration {
	in := t.entered(holder, 0)
	if in == 0 {
		return 0
	}
	return max(holder.last-in, 0)
}
