package sim

import (
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
)

// settles is how long a holder takes a lock of another kind of client for one that is about to be
// withdrawn.
const settles = 3 * time.Second

// undoubted reports whether the clocks by which locks are judged are right.
func (p *plan) undoubted() bool {
	return p.spread == 0 && p.rates[Jump] == 0 && p.storeJump == 0 && !p.store.NoStoreClock && !p.local
}

// alongside checks a lock of ours that is live beside one of another kind of client: a look must
// have shown it, and that ends ours. The other's object has stood there all the time, and
// expires later; and no clock that they are judged by is wrong.
func (w *world) alongside(ours, theirs *holding) {
	p := w.plan
	if !ours.live() || w.wasBroken(ours) || w.wasBroken(theirs) || !p.undoubted() || p.freezing() {
		return
	}
	if p.pair == nil && p.store.PageSize < 1000 && ours.step.mode == replock.Exclusive {
		return // a look reads the first page, and their shared locks are the last
	}
	c, stands := ours.p.client, w.present[theirs.lock.Key()]
	if stands.client != theirs.p.client || time.Since(stands.written) >= foreignTTL-time.Second {
		return
	}
	window := lookInterval + settles + tick + 2*p.roundTrip()
	since := later(later(ours.began, stands.written), c.troubled())
	if ago := time.Since(since); ago > window && c.clock.Woke(window) {
		w.violate("beside", fmt.Sprintf("%v goes on for %v beside %v, of another kind of client", ours, ago.Round(time.Millisecond), theirs))
	}
}
