package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/repolock/repolock/replock"
)

// tidy is the janitor.
func (w *world) tidy() {
	p := w.janitor.living()
	for _, b := range w.plan.breaks {
		time.Sleep(time.Until(w.start.Add(b.at)))
		if w.ctx.Err() != nil || p.gone() {
			return
		}
		w.fired(Break)
		w.trace(w.janitor, "=== break-lock%s", flags("of "+b.lock, b.lock != "", "only what is stale", b.stale, "as another client does", b.foreign, "the tickets", b.tickets))
		var err error
		scope := prefix(b.lock) + "lock."
		if b.foreign || b.tickets {
			scope = ""
		}
		w.only(b.stale && scope != "", scope)
		switch {
		case b.tickets:
			for _, key := range w.tickets() {
				err = errors.Join(err, p.link.Delete(p.ctx, key))
			}
		case b.foreign:
			err = p.link.Delete(p.ctx, exclusiveKey)
		default:
			err = p.locker(0, b.lock).Break(p.ctx, b.stale)
		}
		if p.gone() {
			return
		}
		w.trace(w.janitor, "=== break-lock: %v", err)
	}
}

// tickets returns the keys of all waiters.
func (w *world) tickets() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.queue))
}

// locks returns the names of all locks.
func (w *world) locks() []string {
	names := []string{""}
	for _, c := range w.plan.clients {
		for _, s := range c.steps {
			if !slices.Contains(names, s.lock) {
				names = append(names, s.lock)
			}
		}
	}
	return names
}

// progress checks that one of two acquirers that came at one time has got the lock.
func (w *world) progress() {
	if w.plan.scene != Duel || len(w.plan.clients[0].steps)+len(w.plan.clients[1].steps) < 2 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.result.Acquired == 0 && w.result.Failed == 0 {
		w.violate("progress", fmt.Sprintf("two came at once, and neither has got the lock; a round trip takes %v", w.plan.slow.rtt))
	}
}

// only notes whether the next break-lock must remove stale locks only, and with what their keys
// begin.
func (w *world) only(stale bool, scope string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.staleOnly, w.scope = stale, scope
}

// enterAlone takes a lock when all other clients are gone.
func (w *world) enterAlone(name string) {
	p := w.plan
	last := w.newClient(len(p.clients)+1, "last", &clientPlan{ttl: p.ttl()}, w.another("last"))
	// A lock is stale when its ttl is over on the store's clock, and at most 2 s later because
	// of rounding. If the clocks don't agree, it is stale when it was watched for a ttl.
	limit := later(w.changed.Add(p.ttl()+3*time.Second), time.Now())
	if p.spread != 0 || p.rates[Jump] > 0 || p.storeJump != 0 || p.store.NoStoreClock || w.skewedLeftovers() || p.freezing() || p.sealed || len(p.reboots) > 0 {
		limit = limit.Add(p.ttl() + 5*time.Second)
	}
	if p.store.NoStoreClock || p.local { // mod times come from some client's clock
		limit = limit.Add(p.spread + time.Duration(w.result.Faults[Jump])*time.Hour + 4*time.Minute)
		for _, b := range p.reboots {
			limit = limit.Add(max(b.by, -b.by))
		}
	}
	if p.store.NoTime { // only the ticket's mod time shows the time, and that is as old as the last poll
		limit = limit.Add(10 * time.Second)
	}
	// It polls, and an attempt of those that come too early takes some round trips for each page.
	limit = limit.Add(max(p.storeJump, -p.storeJump) + 20*time.Second + 60*p.latency)

	proc := last.living()
	var k Held
	var place string // the least key that its flags can have
	for {
		var err error
		place = prefix(name) + "lock.intent/" + last.clock.wall().UTC().Format("20060102T150405.000000000Z")
		k, err = proc.locker(0, name).Lock(context.Background(), replock.Exclusive, "last", max(time.Until(limit), 0))
		if err == nil {
			break
		}
		var held *replock.HeldError
		if !errors.As(err, &held) || time.Now().After(limit) {
			w.mu.Lock()
			w.violate("stuck", fmt.Sprintf("nobody is left, and the last one doesn't get in %v after the last write: %v", time.Since(w.changed), err))
			w.mu.Unlock()
			return
		}
		// A try each second would take many tries in an hour.
		time.Sleep(max(time.Second, (time.Until(limit)-5*time.Second)/20))
	}
	w.trace(last, "=== HOLDS the exclusive lock, alone")
	late := time.Now().After(limit)
	time.Sleep(nanoseconds(w.plan.dice.named("last").named(name))) // a holder looks and refreshes now
	if err := k.Release(context.Background()); err != nil {
		w.trace(last, "=== release: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if late {
		w.violate("stuck", fmt.Sprintf("the last one got in only %v after its time", time.Since(limit)))
	}
	w.checkLeft(name, place)
}

// checkLeft checks that nothing is left of a lock but tickets that come after a key.
func (w *world) checkLeft(name, place string) {
	page, err := w.mem.List(context.Background(), prefix(name)+"lock.", "")
	if err != nil {
		w.violate("leftover", err.Error())
	}
	for _, o := range page.Objects {
		if _, waits := w.queue[o.Key]; waits && path.Base(o.Key) > path.Base(place) {
			continue // the ticket is behind its own, by its client's clock, and blocks no client
		}
		w.violate("leftover", fmt.Sprintf("%s is left", w.name(o.Key)))
	}
}

func (w *world) skewedLeftovers() bool {
	for _, l := range w.plan.leftovers {
		if l.skew != 0 {
			return true
		}
	}
	return false
}
