//go:build unix && minio

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
)

// TestClocks: times in answers that are an hour wrong, in either direction or in both at once,
// don't change which client gets in and when. The store's clock is only compared with itself,
// and agrees with the other witness. If the wall clocks of two machines disagreed, a stale
// lock would be watched for one ttl more.
func TestClocks(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, c := range []struct{ holder, other time.Duration }{
			{0, 0}, {time.Hour, time.Hour}, {-time.Hour, -time.Hour}, {time.Hour, -time.Hour}, {-time.Hour, time.Hour},
		} {
			t.Run(fmt.Sprintf("%+v and %+v", c.holder, c.other), func(t *testing.T) {
				t.Parallel()
				at := k.on(k.shared(t))
				// The proxy lets the clients sign with the clock that they see.
				a := proxied(t, at, proxy.Behaviour{Shift: c.holder, Sign: root})
				b := proxied(t, at, proxy.Behaviour{Shift: c.other, Sign: root})
				clocks(at.site(t), at.through(a), at.through(b))
			})
		}
	})
}

// clocks: a holder isn't passed while it lives, and is passed soon after its end. The lease is
// long enough to be refreshed on a busy machine.
func clocks(s *site, holder, through string) {
	const lease = 30 * time.Second
	p := s.at(holder).hold("backup", "a", "--ttl", lease.String())
	other := s.at(through)
	for end := time.Now().Add(lease + 5*time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		refused(other, "prune", p)
	}
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	<-p.done
	end := s.leased()
	in := other.freed(killed.Add(lease + 5*time.Second))
	s.t.Logf("free again after %v", in.Sub(killed).Round(100*time.Millisecond))
	if in.Before(end) {
		s.t.Errorf("free again %v before the lease was over", end.Sub(in))
	}
	s.nothingLeft()
}
