//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/text"
)

const (
	// settle is the time between the start of the other clients and the fault.
	settle = 300 * time.Millisecond
	// calmFor bounds a round without a fault.
	calmFor = 10 * time.Second
	// stay is how long the other clients hold the lock in a round with a fault, so that a holder that is
	// continued meets one of them.
	stay = 500 * time.Millisecond
	// wentOnFor is how long a round watches a holder's child that still writes after another client has
	// acquired the lock.
	wentOnFor = time.Second
	// calmHold bounds the holds while there is no fault, and the pauses between attempts.
	calmHold = 100 * time.Millisecond
)

// round lets the clients contend, and inflicts one fault.
func (t *trial) round(ctx context.Context, f Fault) error {
	report := t.faultReport(f)
	contest, cancel := context.WithCancel(ctx)
	defer cancel()
	t.cancel = cancel
	var clients sync.WaitGroup
	var blocked *contender
	var err error
	if f == Calm {
		blocked, err = t.calm(contest)
	} else {
		blocked, err = t.faulty(contest, &clients, f, report)
	}
	cancel()
	clients.Wait()
	unended := t.finish()
	found, events, unread := t.conclude(report)
	if err = cmp.Or(err, unended, unread); err != nil {
		return err
	}
	if t.unshifted != "" && f == Clock {
		t.report.Faults = slices.DeleteFunc(t.report.Faults, func(r *FaultReport) bool { return r == report })
		t.report.Left = append(t.report.Left, Omitted{f, t.unshifted})
		return nil
	}
	if ctx.Err() == nil {
		report.Rounds++
	}
	if len(found) > 0 {
		report.TwoIn++
		t.draw(f, found[0], events)
	}
	if blocked != nil {
		report.Blocked++
		v := judge.Violation{Name: NeverFreed, Sections: []string{blocked.id}, Text: fmt.Sprintf(
			"the child of %s, %s, ended, and no other client got the lock for %v: %s", blocked.id, blocked.mode, text.Duration(t.freeIn()), f)}
		t.neverFreed = append(t.neverFreed, v)
		t.draw(f, v, events)
		if t.Clean == "" && len(t.Faults) > 1 {
			return errBlocked
		}
	}
	return nil
}

// draw keeps a picture of the first violation of each kind under each fault.
func (t *trial) draw(f Fault, v judge.Violation, events map[string][]judge.Event) {
	if kind := string(f) + " " + v.Name; !t.drawn[kind] {
		t.drawn[kind] = true
		t.report.Pictures = append(t.report.Pictures, picture(f, v, events))
	}
}

func (t *trial) faultReport(f Fault) *FaultReport {
	for _, r := range t.report.Faults {
		if r.Fault == f {
			return r
		}
	}
	r := &FaultReport{Fault: f}
	t.report.Faults = append(t.report.Faults, r)
	return r
}

// mode returns the mode of the next client. Beside a shared holder it is exclusive, because another shared client
// would not test the lock.
func (t *trial) mode(beside judge.Mode) judge.Mode {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Shared == "" || beside == judge.Shared || t.random.IntN(2) == 0 {
		return judge.Exclusive
	}
	return judge.Shared
}

func (t *trial) upTo(d time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Duration(t.random.Int64N(int64(d)))
}

// calm starts all clients at one moment, waits for all of them, and repeats that. If the lock stays held,
// calm returns the last holder.
func (t *trial) calm(ctx context.Context) (blocked *contender, err error) {
	end := clock.System{}.Elapsed() + min(t.Lease, calmFor)
	for {
		var all []*contender
		for n := range t.Clients {
			c, err := t.launch(n, t.mode(""), t.upTo(calmHold))
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		var last *contender // of all that have entered, in this repetition or before
		limit := time.Duration(len(all))*t.Lease + t.enterIn()
		ok, err := t.until(ctx, limit, func() bool {
			last = nil
			for _, c := range t.contenders {
				if c.pid != 0 && (last == nil || c.in > last.in) {
					last = c
				}
			}
			if now := (clock.System{}).Elapsed(); last != nil && last.gone() && now-last.in > t.freeIn() {
				blocked = last
			}
			return blocked != nil || !slices.ContainsFunc(all, func(c *contender) bool { return !t.done(c) })
		})
		if err != nil || ctx.Err() != nil {
			return nil, err
		}
		over := clock.System{}.Elapsed() - end
		switch {
		case blocked != nil:
			return blocked, nil
		case !ok:
			return nil, fmt.Errorf("%w: without any fault, a client didn't end in %s", fault.Unjudged, text.Duration(limit))
		case last == nil && over > t.enterIn():
			return nil, notAcquired(all[0].refusal())
		case over >= 0 && slices.ContainsFunc(all, func(c *contender) bool { return c.pid != 0 }):
			return nil, nil
		}
	}
}

// done reports whether a contender and its child have ended, and notes the end. mu is held.
func (t *trial) done(c *contender) bool {
	if c.wrapped() || c.pid != 0 && !c.gone() {
		return false
	}
	if !c.over && t.read() == nil { // now t has all entries of the child
		c.refused = c.pid == 0
		t.end(c)
	}
	return true
}

// faulty lets one client acquire the lock, starts the others, and inflicts the fault on the holder. If
// the lock stays held, faulty returns the holder.
func (t *trial) faulty(ctx context.Context, clients *sync.WaitGroup, f Fault, report *FaultReport) (blocked *contender, err error) {
	holder, err := t.holder(ctx, f)
	if err != nil || holder == nil {
		return nil, err
	}
	if f == Clock && !seesFaketime(procstat.Marked(holder.mark(t))) {
		t.unshifted = "the wrapper doesn't see the wrong clock: it never asks libc for the time, like Go programs"
		return nil, nil
	}
	for n := 1; n < t.Clients; n++ {
		clients.Go(func() { t.contend(ctx, n, holder.mode, f) })
	}
	_ = clock.Sleep(ctx, clock.System{}, settle)
	if f != Outlast && f != Clock {
		if err := t.inflict(holder, f); err != nil {
			return nil, fmt.Errorf("%w: %s can't be inflicted on %s: %w", fault.Unjudged, f, holder.id, err)
		}
	}
	at := clock.System{}.Elapsed()
	if f.continues() {
		if _, err := t.until(ctx, 2*t.Lease, func() bool { return t.entered(holder, at) > 0 }); err != nil {
			return nil, err
		}
		t.resume(holder, f)
	}
	return t.aftermath(ctx, f, holder, at, report)
}

// aftermath waits until the holder's child has ended. It also stops waiting if the child has gone on writing for
// wentOnFor after another client acquired the lock. After the child's end it waits until the next client has the
// lock. If the lock stays held, aftermath returns the holder.
func (t *trial) aftermath(ctx context.Context, f Fault, holder *contender, at time.Duration, report *FaultReport) (blocked *contender, err error) {
	var met time.Duration
	over, err := t.until(ctx, 4*t.Lease+t.enterIn(), func() bool {
		met = t.meets(holder)
		return met > wentOnFor || holder.gone()
	})
	report.WentOn = max(report.WentOn, met.Seconds())
	switch {
	case err != nil || ctx.Err() != nil || met > wentOnFor:
		return nil, err
	case !over:
		return nil, fmt.Errorf("%w: the child of %s doesn't end: %s", fault.Unjudged, holder.id, f)
	}
	gone := clock.System{}.Elapsed()
	in := time.Duration(0)
	next := func() bool {
		in = t.entered(holder, at)
		return in > 0
	}
	// The wrapper still has to release the lock.
	if _, err = t.until(ctx, t.startIn(), func() bool { return next() || !holder.wrapped() }); err != nil {
		return nil, err
	}
	free, err := t.until(ctx, t.freeIn(), next)
	switch {
	case err != nil || ctx.Err() != nil:
		return nil, err
	case !free:
		return holder, nil
	}
	report.FreeAfter = max(report.FreeAfter, (in - min(gone, in)).Seconds())
	return nil, nil
}

// holder starts client 0, again and again, until it has the lock.
func (t *trial) holder(ctx context.Context, f Fault) (*contender, error) {
	hold := 2 * t.Lease
	switch { // on a busy machine the fault can be late, and must still hit the child
	case f.continues():
		hold += stay
	case f == KillAll:
		hold = time.Minute // the fault ends it
	}
	mode := t.mode("")
	limit := clock.System{}.Elapsed() + t.enterIn()
	for says := ""; ; {
		c, err := t.launch(0, mode, hold, t.faketime(f, 0)...)
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
			return nil, notAcquired(says)
		}
		_ = clock.Sleep(ctx, clock.System{}, 2*calmHold)
	}
}

// contend is a client that takes the lock again and again.
func (t *trial) contend(ctx context.Context, client int, beside judge.Mode, f Fault) {
	for ctx.Err() == nil {
		c, err := t.launch(client, t.mode(beside), stay, t.faketime(f, 3*t.Lease)...)
		if err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.fail(err)
			return
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
}

// entered returns when a client other than beside first acquired the lock later than after, or 0 if none has. mu is
// held.
func (t *trial) entered(beside *contender, after time.Duration) (first time.Duration) {
	for _, c := range t.contenders {
		if c != beside && c.in > after && (first == 0 || c.in < first) {
			first = c.in
		}
	}
	return first
}

// meets returns for how long the holder's child went on writing after another client had acquired the lock. mu is
// held.
func (t *trial) meets(holder *contender) time.Duration {
	in := t.entered(holder, 0)
	if in == 0 {
		return 0
	}
	return max(holder.last-in, 0)
}
