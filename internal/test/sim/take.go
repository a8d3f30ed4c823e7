package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
)

// take takes one lock, holds it, and releases it.
func (c *client) take(p *process, s step) {
	w := c.w
	ctx := context.WithValue(p.ctx, forStep{}, &s)
	k, began, err := c.ask(ctx, p, &s)
	if p.gone() {
		return
	}
	if err != nil {
		w.refused(c, s, began, err)
		return
	}
	h := w.begin(p, s, k, nil, began)
	c.approach(k)
	c.attend(ctx, h)
	if h = c.hold(ctx, h); p.gone() {
		return
	}
	w.done(h)
	c.lastLooks(ctx, h)
	if p.gone() {
		return
	}
	w.trace(c, "=== releases")
	w.end(h)
	if s.meddles > 0 {
		go func() {
			time.Sleep(nanoseconds(w.plan.dice.named(s.name).named("twice")))
			_ = h.lock.Release(ctx)
		}()
	}
	w.released(h, h.lock.Release(ctx))
}

// ask asks for a lock, again and again if the step has patience. It returns when it began to ask
// for the last time.
func (c *client) ask(ctx context.Context, p *process, s *step) (k Held, began time.Time, err error) {
	locker := p.locker(s.locker, s.lock)
	wait := time.Duration(0)
	if s.queues {
		wait, s.patience = s.patience, 0
	}
	began = time.Now()
	c.w.trace(c, "=== wants the %v lock%s%s [%s]", s.mode, flags("with a fence", s.fence), upTo(wait), s.name)
	k, err = locker.Lock(ctx, s.mode, s.name, wait)
	for waited := time.Duration(0); errors.Is(err, replock.ErrHeld) && waited < s.patience && p.ctx.Err() == nil; waited += s.pause {
		<-c.clock.After(s.pause)
		began = time.Now()
		k, err = locker.Lock(ctx, s.mode, s.name, 0)
	}
	return k, began, err
}

// hold holds a lock, and resumes it when it is lost, if the step does. It returns the last lock.
func (c *client) hold(ctx context.Context, h *holding) *holding {
	w, p, s := c.w, h.p, h.step
	for hold := s.hold; ; hold = min(hold, c.plan.ttl) {
		select {
		case <-c.clock.After(hold):
		case <-h.lock.Context().Done():
		}
		if p.gone() || h.lock.Context().Err() == nil || w.ctx.Err() != nil {
			return h
		}
		w.lost(h)
		if !s.resume {
			return h
		}
		asked := time.Now()
		rctx, cancel := context.WithTimeout(ctx, 5*c.plan.ttl)
		quit := c.quit(rctx, h)
		next, err := h.lock.Resume(rctx)
		cancel()
		if p.gone() {
			return h
		}
		if released := <-quit; released || err != nil {
			c.notResumed(ctx, h, next, released, err)
			return h
		}
		h = w.begin(p, s, next, h, asked)
		c.attend(ctx, h)
	}
}

// lastLooks looks at a lock before its release, if the step does.
func (c *client) lastLooks(ctx context.Context, h *holding) {
	w, s := c.w, h.step
	for _, look := range []struct {
		due  bool
		look func(context.Context) error
		text string
	}{{s.check, h.lock.Renew, "checks"}, {s.confirm, h.lock.Check, "confirms"}} {
		time.Sleep(nanoseconds(w.plan.dice.named(s.name).named(look.text)) / 10) // and not when anything else is sent
		if look.due && h.lock.Context().Err() == nil {
			asked := time.Now()
			err := look.look(ctx)
			w.trace(c, "=== %s its lock: %t", look.text, err == nil) // of two reasons either can be given
			w.checked(h, asked, err)
			if look.text == "confirms" && err == nil {
				w.unnoticed(h, asked)
			}
		}
	}
}

// released follows a lock that was released.
func (w *world) released(h *holding, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(h.p.client, "=== has released: %v", err)
	w.tidied(h.p.client, h.step)
	w.prompt(h)
}

// notResumed follows a lock that was released while it was being resumed, or can't be resumed.
func (c *client) notResumed(ctx context.Context, h *holding, next Held, released bool, err error) {
	switch {
	case !released:
		c.w.trace(c, "=== can't resume: %v", err)
	case err == nil:
		c.w.undead(h, next)
		_ = next.Release(ctx)
	}
}

func upTo(wait time.Duration) string {
	if wait == 0 {
		return ""
	}
	return fmt.Sprintf(", and waits up to %v for it", wait)
}

// refused follows a lock that wasn't granted.
func (w *world) refused(c *client, s step, asked time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(c, "=== not granted: %v [%s]", err, s.name)
	w.tidied(c, s)
	if errors.Is(err, replock.ErrHeld) {
		w.result.Held++
		w.keptOut(c, s, asked, err)
		w.keptOutInVain(c, s)
		return
	}
	w.result.Failed++
	if w.plan.survivable() && w.ctx.Err() == nil && w.config.Protocol == nil && !w.plan.slow.near(c.plan.ttl) && !w.plan.unfenced(c.plan, err) {
		w.violate("failed", fmt.Sprintf("%s didn't get its lock [%s] although next to nothing had gone wrong: %v", c.name, s.name, err))
	}
}
