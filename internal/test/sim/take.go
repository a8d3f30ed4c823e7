package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
)

// take takes one lock, holds it, and lets it go. All that can wait is called
// here: how long a wait lasts depends on the names of the functions on the stack (waiter), so
// a part of it in a function of its own would make other histories of all seeds.
func (c *client) take(p *process, s step) {
	w, locker := c.w, p.locker(s.locker, s.lock)
	ctx := context.WithValue(p.ctx, forStep{}, &s)
	began, wait := time.Now(), time.Duration(0)
	if s.queues {
		wait, s.patience = s.patience, 0
	}
	w.trace(c, "=== wants the %v lock%s [%s]", s.mode, upTo(wait), s.name)
	k, err := locker.Lock(ctx, s.mode, s.name, wait)
	for waited := time.Duration(0); errors.Is(err, replock.ErrHeld) && waited < s.patience && p.ctx.Err() == nil; waited += s.pause {
		<-c.clock.After(s.pause)
		began = time.Now()
		k, err = locker.Lock(ctx, s.mode, s.name, 0)
	}
	if p.gone() {
		return
	}
	if err != nil {
		w.refused(c, s, err)
		return
	}
	h := w.begin(p, s, k, nil, began)
	c.approach(k)
	c.attend(ctx, h)
	for hold := s.hold; ; hold = min(hold, c.plan.ttl) {
		select {
		case <-c.clock.After(hold):
		case <-h.lock.Context().Done():
		}
		if p.gone() {
			return
		}
		if h.lock.Context().Err() == nil || w.ctx.Err() != nil {
			break
		}
		w.lost(h)
		if !s.resume {
			break
		}
		asked := time.Now()
		rctx, cancel := context.WithTimeout(ctx, 5*c.plan.ttl)
		quit := c.quit(rctx, h)
		next, err := h.lock.Resume(rctx)
		cancel()
		if p.gone() {
			return
		}
		if released := <-quit; released || err != nil {
			c.notResumed(ctx, h, next, released, err)
			break
		}
		h = w.begin(p, s, next, h, asked)
		c.attend(ctx, h)
	}
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
		}
	}
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
	w.released(c, h.lock.Release(ctx))
}

// released follows a lock that was released.
func (w *world) released(c *client, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(c, "=== has released: %v", err)
	w.tidied(c)
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
func (w *world) refused(c *client, s step, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(c, "=== not granted: %v [%s]", err, s.name)
	w.tidied(c)
	if errors.Is(err, replock.ErrHeld) {
		w.result.Held++
		return
	}
	w.result.Failed++
	if w.plan.survivable() && w.ctx.Err() == nil && w.config.Protocol == nil && !w.plan.slow.near(c.plan.ttl) {
		w.violate("failed", fmt.Sprintf("%s didn't get its lock [%s] although next to nothing had gone wrong: %v", c.name, s.name, err))
	}
}
