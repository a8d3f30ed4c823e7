package sim

import (
	"math"
	"time"

	"github.com/repolock/repolock/store/mem"
)

// slowness is how long a round trip takes, and from some time on another one; or 0.
type slowness struct {
	rtt, then time.Duration
	change    time.Duration
}

func (s slowness) at(t time.Duration) time.Duration {
	if s.then > 0 && t >= s.change {
		return s.then
	}
	return s.rtt
}

// near reports whether round trips are so long that a lock can be refused for it.
func (s slowness) near(ttl time.Duration) bool { return max(s.rtt, s.then) > ttl/60 }

// crawl draws round trips from a tenth of a second to more than a lease survives, and the
// store's abilities, on which their number depends.
func (p *plan) crawl(config *Config, ttl time.Duration, d dice) {
	const least = 100 * time.Millisecond
	p.latency = 10 * time.Millisecond // of the rest
	p.slow.rtt = time.Duration(float64(least) * math.Pow(float64(ttl/6)/float64(least), d.of(1).unit()))
	p.store.PageSize = 1000
	if config.has(Conditions) {
		p.store.IfAbsent = pick(d.of(2), mem.Kept, mem.Claimed, mem.Ignored, mem.Lacked)
		p.store.IfMatch = pick(d.of(3), mem.Kept, mem.Claimed, mem.Ignored, mem.Lacked)
		p.store.Versions = p.store.IfAbsent == mem.Lacked && p.store.IfMatch == mem.Lacked && d.of(4).chance(.5)
		p.store.Markers = d.of(5).chance(.15)
	}
}

// stageCrawl: a store that is slow, and otherwise mostly good.
func (p *plan) stageCrawl(config *Config, d dice) {
	ttl := pick(d.of(1), 10*time.Second, 30*time.Second, time.Minute, time.Minute, 3*time.Minute)
	p.crawl(config, ttl, d.of(2))
	switch {
	case d.of(3).chance(.6):
		p.quiet()
		s := make([]step, 1+d.of(4).below(2))
		for n := range s {
			s[n] = drawStep("", ttl, d.of(5, uint64(n)))
			s[n].hold = d.of(6, uint64(n)).between(ttl, 4*ttl)
			s[n].queues = d.of(7, uint64(n)).chance(.5) && s[n].patience > 0
		}
		p.cast(config, ttl, s...)
	case d.of(8).chance(.5):
		p.slow.then, p.slow.change = d.of(9).between(10*time.Millisecond, ttl/4), d.of(10).between(0, 3*ttl)
		fallthrough
	default:
		p.clients[0].hold(d.of(11))
	}
}
