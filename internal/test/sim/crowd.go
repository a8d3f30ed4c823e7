package sim

import (
	"context"
	"slices"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// deleteAll is the request to delete many objects.
const deleteAll = "delete all"

// DeleteAll sends. The store deletes one object after another, and not all of them: it can
// refuse some, leave some out of its answer, or fail half-way.
func (l *link) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	r := request{op: deleteAll, key: keys[0], keys: slices.Clone(keys)}
	deleted, err := sendSteps(ctx, l, r, l.deleteEach)
	if err != nil {
		return make([]bool, len(keys)), err
	}
	return deleted, nil
}

func (l *link) deleteEach(r request, f fault) ([]bool, error) {
	deleted, p, ill, d := make([]bool, len(r.keys)), l.w.plan, l.w.plan.ill, f.dice.named("each")
	if l.w.calm.Load() {
		ill = 0
	}
	if p.store.NoBatch {
		return nil, &store.Error{Op: "delete", Key: r.key, Err: store.ErrBatchUnsupported}
	}
	fails := len(r.keys)
	if d.of(1).chance(ill / 2) {
		fails = d.of(2).below(len(r.keys))
	}
	for i, key := range r.keys {
		d := d.of(3, uint64(i))
		if i == fails {
			return nil, errBroken
		}
		if d.of(1).chance(.2) { // others act meanwhile
			time.Sleep(d.of(2).within(p.latency) + nanoseconds(d.of(3)))
		}
		one := r
		one.op, one.key, one.keys = "delete", key, nil
		_, err := atStore(l, one, f, func() (struct{}, error) {
			switch {
			case l.p.client.plan.noDelete:
				return struct{}{}, &store.Error{Op: "delete", Key: key, Err: store.ErrPermission}
			case d.of(4).chance(ill):
				return struct{}{}, errBroken
			}
			return struct{}{}, l.w.mem.Delete(context.Background(), key)
		})
		deleted[i] = err == nil && !d.of(5).chance(ill/2) // or the answer leaves it out
	}
	return deleted, nil
}

// stageCrowd: many holders have crashed, so that an exclusive acquirer deletes many flags by one
// request. In most histories the first client's lock is among them, and it comes back from an
// outage when the others can just have passed it.
func (p *plan) stageCrowd(config *Config, d dice) {
	if d.of(1).chance(.6) {
		p.quiet()
	}
	p.latency, p.store.PageSize = min(p.latency, 80*time.Millisecond), 1000
	p.store.NoBatch, p.ill = d.of(2).chance(.1), pick(d.of(3), 0, .05, .3)
	ttl := pick(d.of(4), 10*time.Second, 10*time.Second, time.Minute)
	if d.of(5).chance(.8) {
		holder, s := clientPlan{ttl: ttl}, make([]step, 2+d.of(6).below(2))
		for n := range s {
			s[n] = drawStep("", ttl, d.of(10, uint64(n)))
			holder.comeback(uint64(n), &s[n], p.latency, d.of(11, uint64(n)))
		}
		s[0].mode, s[1].mode = replock.Shared, replock.Exclusive // a shared one leaves the flags there
		p.cast(config, ttl, s...)
		if config.has(Outage) {
			p.clients[0].outage = holder.outage
		}
	}
	if !config.has(Leftovers) {
		return
	}
	p.leftovers = nil
	emptied := d.of(7).chance(.2)
	for n := range uint64(17 + d.of(8).below(8)) { // at 17 the engine begins to delete many at once
		p.leftovers = append(p.leftovers, leftover{mode: replock.Shared, flag: true, ttl: ttl, age: d.of(9, n).between(2*ttl+10*time.Second, 6*ttl), empty: emptied})
	}
}
