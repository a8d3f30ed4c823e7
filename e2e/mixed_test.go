//go:build unix && minio

package e2e

import (
	"fmt"
	"testing"

	"github.com/repolock/repolock/internal/test/proxy"
)

// TestPartition: the holder is cut off, and another client, which isn't, gets in. The first
// command never runs at the same time, and never again.
func TestPartition(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for name, how := range map[string]struct{ cut, join func(*proxy.Proxy) error }{
			"refused": {
				func(p *proxy.Proxy) error { p.Stop(); return nil },
				(*proxy.Proxy).Start,
			},
			"hanging": {
				func(p *proxy.Proxy) error { p.Behave(proxy.Behaviour{Blackhole: true}); return nil },
				func(p *proxy.Proxy) error { p.Behave(proxy.Behaviour{}); return nil },
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				at := k.on(k.shared(t))
				p := proxied(t, at, proxy.Behaviour{})
				partition(at.site(t), at.through(p), func() error { return how.cut(p) }, func() error { return how.join(p) })
			})
		}
	})
}

func partition(s *site, through string, cut, join func() error) {
	a := s.at(through).hold("backup", "a", brief...)
	must := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	must(cut())
	s.another()
	must(join())
	s.lostTo(a)
}

// TestMixed: a client through one driver and one through the other, on the same
// bucket, exclude each other both ways round.
func TestMixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, second kind
	}{{onS3, onMinIO}, {onMinIO, onS3}} {
		for _, op := range []struct{ first, second string }{
			{"backup", "prune"}, {"prune", "backup"}, {"prune", "prune"},
		} {
			t.Run(fmt.Sprintf("%s of %s, %s of %s", op.first, c.first.name, op.second, c.second.name), func(t *testing.T) {
				t.Parallel()
				at := c.first.on(c.first.shared(t))
				s := at.site(t)
				other := s.at(c.second.url(at.host(), at.bucket))
				p := s.hold(op.first, "a")
				refused(other, op.second, p)
				if op.first == "backup" {
					other.hold("backup", "b").end("b")
				}
				p.end("a")
				other.hold(op.second, "c").end("c")
				s.nothingLeft()
			})
		}
	}
}
