package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
)

// life is a time in which an object of a lock was stored.
type life struct {
	client *client
	step   string    // that the client put it for; none of a leftover
	handed time.Time // when that put was sent
	to     time.Time // when it was deleted or emptied, or replaced by another step; zero until then
	dead   bool      // it was certainly stale from the beginning
}

// lives tracks when the objects of locks were stored, by their keys.
func (w *world) lived(c *client, r request) {
	if !isLock(r.key) {
		return
	}
	step := ""
	if r.step != nil {
		step = r.step.name
	}
	all := w.lives[r.key]
	if n := len(all) - 1; n >= 0 && all[n].to.IsZero() {
		if last := all[n]; r.op == "put" && len(r.body) > 0 && last.client == c && last.step == step {
			return
		}
		all[n].to = time.Now()
	}
	if r.op == "put" && len(r.body) > 0 {
		w.lives[r.key] = append(all, life{client: c, step: step, handed: r.handed})
	}
}

// isLock reports whether a key is that of a lock's object.
func isLock(key string) bool {
	return strings.Contains(key, "/lock.exclusive") || strings.Contains(key, "/lock.intent/") || strings.Contains(key, "/lock.shared/")
}

// hindered reports whether anything can have kept a step from its lock since it asked: a
// conflicting object of another client or step, or of its own from before. Dead ones count if
// they might have been taken for others.
func (w *world) hindered(c *client, s step, asked time.Time, dead bool) bool {
	for key, lives := range w.lives {
		if !strings.HasPrefix(key, prefix(s.lock)+"lock.") || s.mode == replock.Shared && strings.Contains(key, "/lock.shared/") {
			continue
		}
		for _, l := range lives {
			own := l.client == c && l.step == s.name && !l.handed.Before(asked)
			if !own && (l.to.IsZero() || !l.to.Before(asked)) && (dead || !l.dead) {
				return true
			}
		}
	}
	return false
}

// keptOut checks a refusal: something stored was in the way. That can be the step's own
// lock.exclusive, if the put of it had no answer and then it couldn't be read.
func (w *world) keptOut(c *client, s step, asked time.Time, err error) {
	held, _ := errors.AsType[*replock.HeldError](err)
	unread := held != nil && slices.ContainsFunc(held.Holders, func(i replock.Info) bool {
		return i.Holder == "" && i.Why != "" && isExclusive(i.Key())
	})
	if w.config.Protocol == nil && !c.plan.foreign && !unread && !w.hindered(c, s, asked, !w.plan.undisturbed() || w.plan.timeless()) {
		w.violate("unheld", fmt.Sprintf("%s didn't get its %v lock [%s] because it is held, and nothing was stored that conflicts with it", c.name, s.mode, s.name))
	}
}

// patience is for how long a lock that is certainly stale can hinder an acquirer if nothing goes
// wrong.
const patience = 30 * time.Second

// detained checks a lock that was granted: nothing but locks that were dead has delayed it.
func (w *world) detained(h *holding) {
	if w.config.Protocol != nil || h.foreign() || !w.plan.undisturbed() || w.plan.store.NoStoreClock || w.plan.slow.rtt > 0 {
		return
	}
	if took := time.Since(h.asked); took > patience && !w.hindered(h.p.client, h.step, h.asked, false) {
		w.violate("kept", fmt.Sprintf("%v was granted after %v, and nothing was in its way but what was dead", h, took.Round(time.Millisecond)))
	}
}

// tidied checks that a step that holds nothing has left nothing.
func (w *world) tidied(c *client, s step) {
	if !w.plan.undisturbed() || w.plan.scene == Brink || w.config.Protocol != nil || w.ctx.Err() != nil || w.plan.slow.rtt > 0 || c.plan.foreign {
		return
	}
	for key, lives := range w.lives {
		last := lives[len(lives)-1]
		if last.client == c && last.step == s.name && last.to.IsZero() && !isExclusive(key) {
			w.violate("litter", fmt.Sprintf("%s holds nothing [%s], and has left %s", c.name, s.name, w.name(key)))
		}
	}
}
