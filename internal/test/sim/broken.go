package sim

import (
	"context"
	"fmt"
	"time"
)

// brokenKey reports whether a break-lock has removed anything under this key.
func (w *world) brokenKey(key string) bool {
	for o := range w.broken {
		if keyOf(o) == key {
			return true
		}
	}
	return false
}

// wasBroken reports whether a break-lock has removed one of a lock's objects. The objects of
// the lock that it was resumed from don't count any more.
func (m *monitor) wasBroken(h *holding) bool {
	for _, o := range h.objects() {
		if _, ok := m.broken[o]; ok {
			return true
		}
	}
	return false
}

// stillBroken names an object of a lock that was broken by that time, and that no put has
// brought back.
func (m *monitor) stillBroken(h *holding, at time.Time) string {
	for _, o := range h.objects() {
		if b, ok := m.broken[o]; ok && b.Before(at) && !m.undone[o] {
			return o
		}
	}
	return ""
}

// breaking notes the objects that a break-lock is about to remove.
func (w *world) breaking(p *process, r request) {
	if p.client != w.janitor || !r.writes() || r.op == "put" && len(r.body) > 0 {
		return
	}
	raw, _, err := w.mem.Get(context.Background(), r.key, 1<<20)
	if err != nil || len(raw) == 0 { // released before
		return
	}
	w.strays(p, r)
	w.unripe(r, raw)
	o := objectName(r.key, raw)
	w.broken[o] = time.Now()
	for _, h := range w.active {
		if r.staleOnly && h.live() && !w.adrift(h, h) && h.lock.Key() == r.key && !w.overslept(h, r) && (!h.foreign() || w.stands(h.p.client, r.key, time.Now()) && w.stoodWhenListed(h.p.client, r.key)) {
			w.violate("overbroken", fmt.Sprintf("break-lock --stale breaks %v, which is live", h))
		}
	}
}

// stoodWhenListed reports whether the foreign lock at a key was live when the break-lock listed that key,
// as it does just before it deletes what is stale. One that had ended can be refreshed after that: the
// delete has no condition, and its holder should have been gone.
func (w *world) stoodWhenListed(c *client, key string) bool {
	listed, p := w.seen[w.janitor.name+" "+key].listed, w.present[key]
	return listed.IsZero() || p.client != c || listed.Sub(p.writtenBefore(listed)) < foreignTTL-time.Second
}

// overslept reports whether a pause by the hypervisor can make a flag stale that a break-lock
// is about to remove, or could until a moment ago. Either the lock's machine was paused, and
// the flag was written before the end of the pause or after the last look of the break-lock.
// Or the machine of the break-lock was paused since then, which it can't notice.
func (w *world) overslept(h *holding, r request) bool {
	lag, written := h.p.client.machine.lags(), w.present[r.key].written
	look, looked := w.seen[w.janitor.name+" "+r.key]
	if looked && w.janitor.machine.lags().over.After(look.handed) {
		return true
	}
	return lag.over.After(written) || looked && !lag.over.IsZero() && written.After(look.handed)
}

// undo notes an object that was broken while a put of it was under way, which has brought it
// back. For lock.exclusive that includes a put of another lock of the same client, since a
// client recognizes all its ids.
func (w *world) undo(c *client, r request) {
	w.owner[objectName(r.key, r.body)] = c
	for o, at := range w.broken {
		if keyOf(o) == r.key && w.owner[o] == c && w.underWay(c, r, at) {
			w.undone[o] = true
		}
	}
}

// underWay reports whether a put was under way at a time: it had been sent, or the look before
// it.
func (w *world) underWay(c *client, r request, at time.Time) bool {
	if !r.handed.After(at) {
		return true
	}
	if !r.handed.Before(at.Add(c.plan.ttl / 3)) {
		return false
	}
	return !r.after.IsZero() && r.after.Before(at)
}

// lastLook returns when a client sent its last look at a key that the store has carried out.
func (w *world) lastLook(c *client, key string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	look := w.seen[c.name+" "+key].handed
	for _, lock := range w.locks() {
		look = later(look, w.seen[c.name+" "+prefix(lock)+"lock."].handed)
	}
	return look
}
