package sim

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
)

// ticket is a waiter's place in the queue.
type ticket struct {
	client *client
	shared bool
	since  time.Time
	put    time.Time // the last time
	gone   time.Time // when a client has deleted it
}

// queued tracks the waiters, by their tickets.
func (w *world) queued(c *client, r request, err error) {
	switch {
	case err != nil || !r.writes():
	case !bytes.Contains(r.body, []byte(`"state":"waiting"`)):
		if t, ok := w.queue[r.key]; ok && c == w.janitor {
			if t.gone.IsZero() {
				t.gone = time.Now()
			}
			w.queue[r.key] = t
			return
		}
		delete(w.queue, r.key)
	default:
		t := w.queue[r.key]
		t.gone = time.Time{}
		if t.client == nil {
			t.client, t.since, t.shared = c, time.Now(), strings.Contains(r.key, "lock.shared/")
			w.result.Queued++
		}
		t.put = time.Now()
		w.queue[r.key] = t
	}
}

// checkQueue checks the ticket of every waiter.
func (w *world) checkQueue() {
	for key, t := range w.queue {
		if ago := time.Since(t.gone); !t.gone.IsZero() {
			limit := unqueued
			if w.plan.store.PageSize < 1000 { // a poll reads no further than the first page with a live lock
				limit += t.client.plan.ttl / 2
			}
			if ago > limit && w.plan.scene == Evict && !w.calm.Load() {
				w.violate("unqueued", fmt.Sprintf("%s waits, and hasn't put %s again for %v", t.client.name, w.name(key), ago.Round(time.Millisecond)))
			}
			continue
		}
		if ago := time.Since(t.put); ago > t.client.plan.ttl && w.plan.store.PageSize >= 1000 && w.plan.undisturbed() && !w.plan.slow.near(t.client.plan.ttl) && !w.calm.Load() {
			w.violate("expired", fmt.Sprintf("%s waits, and hasn't refreshed %s for %v", t.client.name, w.name(key), ago.Round(time.Millisecond)))
		}
	}
}

// overtaken checks that no lock was granted before another one for which a client was
// already waiting.
func (w *world) overtaken(h *holding, asked time.Time) {
	for key, t := range w.queue {
		if t.shared && h.step.mode == replock.Shared {
			continue // they hold it together
		}
		if t.client != h.p.client && t.gone.IsZero() && strings.HasPrefix(key, prefix(h.step.lock)+"lock.") && t.since.Before(asked) && w.plan.undisturbed() {
			w.violate("overtaken", fmt.Sprintf("%v is granted before that of %s, who has waited for %v (%s)", h, t.client.name, time.Since(t.since), w.name(key)))
		}
	}
}

// unqueued is how soon a waiter puts its ticket again: each poll shows whether it exists, and
// some attempts can be under way before it.
const unqueued = 40 * time.Second
