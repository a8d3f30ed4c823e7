package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/store"
)

// A client of the original protocol can encrypt the bodies of its locks. The engine understands
// no more of them than their first byte, so these here are encrypted in name only.
const sealedByte = 0x01

func seal(body []byte) []byte { return append([]byte{sealedByte}, body...) }

// sealing is the store as such a client uses it.
type sealing struct{ store.Store }

// Put encrypts.
func (s sealing) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return s.Store.Put(ctx, key, seal(body), opts)
}

// Get decrypts, if need be: ours are plain.
func (s sealing) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	raw, o, err := s.Store.Get(ctx, key, limit)
	if len(raw) > 0 && raw[0] == sealedByte {
		raw = raw[1:]
	}
	return raw, o, err
}

// sealedDead is the age at which the engine takes an encrypted body for dead, if both clocks show
// it. Before that only a watch for its whole ttl shows it.
const sealedDead = 15 * time.Hour

// stageSealed: the other clients, live and dead, encrypt their bodies.
func (p *plan) stageSealed(config *Config, d dice) {
	if d.of(1).chance(.5) {
		p.quiet()
	}
	p.sealed = true
	if d.of(2).chance(.6) {
		p.stageForeign(config, d.of(3))
	}
	if config.has(Leftovers) && d.of(4).chance(.8) {
		p.leftovers = nil
		for n := range uint64(1 + d.of(5).below(2)) {
			d := d.of(6, n)
			l := drawLeftover(config, d.of(1))
			l.foreign, l.empty, l.skew, l.ttl = true, false, 0, foreignTTL
			l.age = pick(d.of(2), d.of(3).between(0, 2*foreignTTL), d.of(3).between(2*foreignTTL, sealedDead-2*time.Hour), d.of(3).between(sealedDead+2*time.Hour, 3*sealedDead))
			p.leftovers = append(p.leftovers, l)
		}
	}
	if config.has(Break) && d.of(7).chance(.3) {
		p.breaks = append(p.breaks, breaking{at: d.of(8).between(0, 2*foreignTTL), stale: d.of(9).chance(.8)})
	}
}

// sealedLeftover reports whether a leftover lock's body is encrypted.
func (p *plan) sealedLeftover(l leftover) bool { return p.sealed && l.foreign && !l.empty }

// dead reports whether a leftover lock is certainly stale from the beginning, by clocks that are
// right.
func (p *plan) dead(l leftover) bool {
	if p.sealedLeftover(l) {
		return l.age > sealedDead+time.Hour
	}
	return l.empty || l.skew == 0 && l.age > l.ttl+10*time.Second
}

// unripe checks that break-lock --stale leaves a lock that is encrypted, and that only a watch can
// show to be dead. Another lock can have taken its place.
func (w *world) unripe(r request, raw []byte) {
	for _, g := range w.ghosts {
		if r.staleOnly && g.key == r.key && g.sealed && raw[0] == sealedByte {
			w.violate("overbroken", fmt.Sprintf("break-lock --stale breaks %s, whose body is encrypted and not known to be dead", w.name(r.key)))
		}
	}
}
