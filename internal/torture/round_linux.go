package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/text"
)

const (
	// settle is the time that the others have to get in the holder's way before the fault.
	settle = 300 * time.Millisecond
	// calmFor bounds a round without a fault.
	calmFor = 10 * time.Second
	// stay is how long a client holds the lock beside a fault: it must meet a holder that
	// continues.
	stay = 500 * time.Millisecond
	// wentOnFor is how long a holder's child is watched after another got in.
	wentOnFor = time.Second
	// calmHold bounds the holds while there is no fault, and the pauses between attempts.
	calmHold = 100 * time.Millisecond
)

// round lets the clients contend once, and inflicts one fault.
func (t *trial) round(ctx context.Context, f Fault) error {
	report := t.faultReport(f)
	contest, stop := context.WithCancelCause(ctx)
	var clients sync.WaitGroup
	var blocked *contender
	var err error
	if f == Calm {
		blocked, err = t.calm(contest)
	} else {
		blocked, err = t.faulty(contest, stop, &clients, f, report)
	}
	stop(nil)
	clients.Wait()
	unended := t.finish()
	found, events, unread := t.conclude(report)
	if err = errors.Join(err, unended, unread); err != nil {
		return err
	}
	if t.shiftless != "" && f == Clock {
		t.report.Faults = slices.DeleteFunc(t.report.Faults, func(r *FaultReport) bool { return r == report })
		t.report.Left = append(t.report.Left, Omitted{f, t.shiftless})
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
			"the child of %s, %s, has ended, and no other got in for %v: %s", blocked.id, blocked.mode, text.Duration(t.patience()), f)}
		t.extra = append(t.extra, v)
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

// mode returns the mode of a client's lock. Beside a shared holder only exclusive ones show
// whether its lock holds.
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
	return upTo(t.random, d)
}

// calm starts all clients at one moment, waits for all of them, and repeats that. It returns the
// last client that got in if its lock isn't free again in time.
func (t *trial) calm(ctx context.Context) (*contender, error) {
	end := clock.System{}.Elapsed() + min(t.Lease, calmFor)
	var last *contender
	var entered time.Duration
	for {
		var all []*contender
		for n := range t.Clients {
			c, err := t.launch(n, t.mode(""), t.upTo(calmHold))
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		in, blocked := map[*contender]bool{}, false
		limit := time.Duration(len(all))*t.Lease + t.entry()
		ok, err := t.until(ctx, limit, func() bool {
			for _, c := range all {
				if c.pid != 0 && !in[c] {
					in[c], last, entered = true, c, clock.System{}.Elapsed()
				}
			}
			blocked = last != nil && last.gone() && clock.System{}.Elapsed()-entered > t.patience()
			return blocked || !slices.ContainsFunc(all, func(c *contender) bool { return !t.done(c) })
		})
		if err != nil || ctx.Err() != nil {
			return nil, err
		}
		over := clock.System{}.Elapsed() - end
		switch {
		case blocked:
			return last, nil
		case !ok:
			return nil, fmt.Errorf("%w: without any fault, a client didn't end in %s", ErrUnjudged, text.Duration(limit))
		case last == nil && over > t.entry():
			return nil, notAcquired(0, all[0].refusal())
		case len(in) > 0 && over >= 0:
			return nil, nil
		}
	}
}

// done reports whether a contender and its child have ended, and notes it. contest.mu is held.
func (t *trial) done(c *contender) bool {
	if c.wrapped() || c.pid != 0 && !c.gone() {
		return false
	}
	if !c.over && t.read() == nil { // it has written all that it will
		c.refused = c.pid == 0
		t.end(c)
	}
	return true
}

// faulty lets one client in, starts the others beside it, and inflicts the fault. It returns
// the client if its lock isn't free again in time.
func (t *trial) faulty(ctx context.Context, stop context.CancelCauseFunc, clients *sync.WaitGroup, f Fault, report *FaultReport) (*contender, error) {
	holder, err := t.holder(ctx, f)
	if err != nil || holder == nil {
		return nil, err
	}
	if f == Clock && !seesFaketime(procstat.Marked(holder.mark(t))) {
		t.shiftless = "the wrong clock doesn't reach the wrapper, which never asks libc for the time, like Go programs"
		return nil, nil
	}
	for n := 1; n < t.Clients; n++ {
		clients.Go(func() {
			if err := t.contend(ctx, n, holder.mode, f); err != nil {
				stop(failure{err})
			}
		})
	}
	_ = clock.Sleep(ctx, clock.System{}, settle)
	if f != Outlast && f != Clock {
		if err := t.inflict(holder, f); err != nil {
			return nil, fmt.Errorf("%w: %s can't be inflicted on %s: %w", ErrUnjudged, f, holder.id, err)
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

// aftermath waits until the holder's child has ended or met another, and then until the next
// client is in.
func (t *trial) aftermath(ctx context.Context, f Fault, holder *contender, at time.Duration, report *FaultReport) (*contender, error) {
	limit := 4*t.Lease + t.entry()
	over, err := t.until(ctx, limit, func() bool { return t.meets(holder) > wentOnFor || holder.gone() })
	t.mu.Lock()
	met := t.meets(holder)
	t.mu.Unlock()
	report.WentOn = max(report.WentOn, met.Seconds())
	if err == nil && !over && ctx.Err() == nil {
		err = fmt.Errorf("%w: the child of %s doesn't end: %s", ErrUnjudged, holder.id, f)
	}
	if err != nil || met > wentOnFor || ctx.Err() != nil {
		return nil, errors.Join(err, failed(ctx))
	}
	gone := clock.System{}.Elapsed()
	in := time.Duration(0)
	next := func() bool {
		in = t.entered(holder, at)
		return in > 0
	}
	// Its wrapper has yet to release the lock.
	if _, err = t.until(ctx, t.limits().entry, func() bool { return next() || !holder.wrapped() }); err != nil {
		return nil, err
	}
	free, err := t.until(ctx, t.patience(), next)
	switch {
	case err != nil || ctx.Err() != nil:
		return nil, errors.Join(err, failed(ctx))
	case !free:
		return holder, nil
	}
	report.FreeAfter = max(report.FreeAfter, (in - min(gone, in)).Seconds())
	return nil, nil
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

// entered returns when the first client got in after a time, or 0. contest.mu is held.
func (t *trial) entered(beside *contender, after time.Duration) (first time.Duration) {
	for _, c := range t.contenders {
		if c != beside && c.in > after && (first == 0 || c.in < first) {
			first = c.in
		}
	}
	return first
}

// meets returns for how long the holder's child has written after another got in. contest.mu is held.
func (t *trial) meets(holder *contender) time.Duration {
	in := t.entered(holder, 0)
	if in == 0 {
		return 0
	}
	return max(holder.last-in, 0)
}
