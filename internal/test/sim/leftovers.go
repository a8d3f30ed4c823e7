package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// leftover is a lock of a client that has gone.
type leftover struct {
	mode    replock.Mode
	lock    string // its name
	flag    bool   // as opposed to lock.exclusive
	age     time.Duration
	ttl     time.Duration
	skew    time.Duration // of its holder's wall clock
	foreign bool          // written by another client of the wire format
	empty   bool          // released by a client without the right to delete
	here    bool          // its holder was a process of the first machine, since its last boot
}

// leave puts the leftover locks.
func (w *world) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, l := range w.plan.leftovers {
		w.result.Faults[Leftovers]++
		key, raw := w.inherited(n, l)
		w.past = l.age
		if _, err := w.mem.Put(context.Background(), key, raw, store.PutOptions{}); err != nil {
			panic(err)
		}
		w.past = 0
		delete(w.lives, key) // overwritten
		w.ghosts = slices.DeleteFunc(w.ghosts, func(g ghost) bool { return g.key == key })
		if !l.empty {
			w.lives[key] = []life{{dead: w.plan.dead(l)}}
		}
		if till := w.haunts(l); till > 0 {
			w.ghosts = append(w.ghosts, ghost{l.mode, l.lock, key, w.start.Add(till), w.plan.sealedLeftover(l)})
		}
		w.say(nil, "left behind %v ago: %s%s", l.age.Round(time.Millisecond), strings.TrimPrefix(key, replock.DefaultPrefix),
			flags("encrypted", w.plan.sealedLeftover(l), "of this boot", l.here))
	}
}

// inherited returns the nth leftover lock's key and body.
func (w *world) inherited(n int, l leftover) (key string, raw []byte) {
	at := w.start.Add(l.skew - l.age)
	id := fmt.Sprintf("%032x", n+1)
	body := map[string]any{
		"operation": "leftover", "holder": "gone (pid 1)", "is_shared": l.mode == replock.Shared,
		"acquired_at": at.UTC().Format(time.RFC3339Nano), "expires_at": at.Add(l.ttl).UTC().Format(time.RFC3339Nano),
	}
	name := at.UTC().Format("20060102T150405.000000000Z") + "-" + id
	key = prefix(l.lock) + exclusive
	switch {
	case l.mode == replock.Shared && l.foreign:
		key = prefix(l.lock) + "lock.shared/" + at.UTC().Format(time.RFC3339Nano)
	case l.mode == replock.Shared:
		key = prefix(l.lock) + "lock.shared/" + name
	case l.flag && !l.foreign:
		key = prefix(l.lock) + "lock.intent/" + name
	}
	if !l.foreign {
		body["id"], body["ttl_seconds"], body["state"] = id, l.ttl.Seconds(), "held"
		body["refreshed_at"] = at.UTC().Format(time.RFC3339Nano)
	}
	if m := w.machines[0]; l.here {
		body["boot_id"], body["time_namespace"] = m.bootID(), namespace(0)
		body["refreshed_boot_ns"] = int64(m.uptime() - l.age)
	}
	raw, err := json.Marshal(body)
	switch {
	case err != nil:
		panic(err)
	case l.empty:
		return key, nil
	case w.plan.sealedLeftover(l):
		return key, seal(raw)
	}
	return key, raw
}

// haunts returns until when a leftover lock must be taken for held, from the beginning of the
// history, or 0. If both witnesses can be wrong about it, nothing is asserted.
func (w *world) haunts(l leftover) time.Duration {
	switch {
	case l.empty:
		return 0
	case w.plan.sealedLeftover(l) && l.age < sealedDead:
		return l.ttl // each acquirer must watch it for so long
	case w.plan.sealedLeftover(l):
		return 0
	case l.here && len(w.plan.reboots) > 0: // which its holder doesn't survive
		return min(w.plan.reboots[0].at, l.ttl-l.age-l.ttl/12)
	case w.plan.local && l.here, w.plan.storeJump == 0 && !w.plan.local && !w.plan.store.NoStoreClock:
		return l.ttl - l.age - l.ttl/12
	}
	return 0
}
