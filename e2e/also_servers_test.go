//go:build linux && programs && !minio

package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/states"
)

// TestAlsoServerGone: a server is killed, restarted or stopped while its lock is held. The
// command is ended by the lock's deadline, or as soon as the loss is noticed.
func TestAlsoServerGone(t *testing.T) {
	killRedis, stopRedis := func(s *systems) { s.redis.Kill() }, func(s *systems) { s.redis.Stop() }
	killPostgres, stopPostgres := func(s *systems) { s.pg.Kill() }, func(s *systems) { s.pg.Stop() }
	const noResume = "a lock of this kind can't be resumed"
	for name, c := range map[string]struct {
		kind   string
		away   func(*systems)
		onLost string
		says   string
	}{
		"redis killed, pause":      {kindRedis, killRedis, "pause", noResume},
		"redis killed, term":       {kindRedis, killRedis, "term", "the command is sent TERM"},
		"redis killed, kill":       {kindRedis, killRedis, "kill", noResume},
		"redis stopped, pause":     {kindRedis, stopRedis, "pause", noResume},
		"redis stopped, term":      {kindRedis, stopRedis, "term", "the command is sent TERM"},
		"postgres killed, pause":   {kindPostgres, killPostgres, "pause", "is lost: "},
		"postgres stopped, pause":  {kindPostgres, stopPostgres, "pause", noResume},
		"postgres shut down, kill": {kindPostgres, func(s *systems) { s.pg.Shutdown() }, "kill", "terminating connection"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystems(t, c.kind)
			p := s.hold("run", "work", append(s.also(c.kind), "--ttl", ttl.String(), "--on-lost", c.onLost)...)
			pid := s.pidIn("pid-work")
			away := time.Now()
			c.away(s)
			p.exits(79)
			ended, last := time.Since(away), s.last("work").Sub(away)
			if last > ttl {
				t.Errorf("the command ran for %v without the server, beyond the ttl of %v", last, ttl)
			}
			if alive(pid) {
				t.Error("the command is still there")
			}
			p.contains(c.says, s.urls[c.kind])
			t.Logf("the command ran for %v, and repolock ended after %v: %s", max(last, 0).Round(time.Millisecond),
				ended.Round(time.Millisecond), p.stderr.String())
			switch {
			case c.kind == kindRedis:
				s.redis.Restart()
			default:
				s.pg.Kill()
				s.pg.Start()
			}
			s.nothingLeft()
		})
	}
}

// TestAlsoRedisForgets: redis is restarted with an empty memory. The holder notices that with
// its next renewal.
func TestAlsoRedisForgets(t *testing.T) {
	s := newSystems(t, kindRedis)
	p := s.hold("run", "work", append(s.also(kindRedis), "--look", "1s")...)
	down := time.Now()
	s.redis.Restart()
	up := time.Now()
	p.exits(79)
	ended, last := time.Since(up), s.last("work").Sub(up)
	p.contains(s.urls[kindRedis])
	t.Logf("redis was down for %v; the command ran for %v beside its empty memory, and repolock ended after %v: %s",
		up.Sub(down).Round(time.Millisecond), max(last, 0).Round(time.Millisecond), ended.Round(time.Millisecond),
		p.stderr.String())
	s.nothingLeft()
}

// TestAlsoStopped: repolock itself is stopped beyond the ttl. The guard stops the command. A
// beads lock is resumed, and one in redis can't be.
func TestAlsoStopped(t *testing.T) {
	for _, kind := range []string{kindBeads, kindRedis} {
		t.Run(kind, func(t *testing.T) {
			s := newSystems(t, kind)
			p := s.hold("run", "work", append(s.also(kind), "--ttl", ttl.String())...)
			pid := s.pidIn("pid-work")
			begin := time.Now()
			if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			s.until("the command to be stopped", hang, func() bool { return states.AllStopped(pid) })
			stopped := time.Since(begin)
			if last := s.last("work").Sub(begin); last > ttl {
				t.Errorf("the command ran for %v, beyond the ttl of %v", last, ttl)
			}
			s.until("the ttl to be over", hang, func() bool { return time.Since(begin) > ttl })
			n := len(s.lines("work"))
			if err := p.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if kind == kindBeads {
				p.says("the lock was resumed, and the command continued")
				p.ticksOn("work")
				p.end("work")
			} else {
				p.exits(79)
				if more := len(s.lines("work")) - n; more > 0 {
					t.Errorf("the command went on for %d ticks", more)
				}
			}
			t.Logf("the command was stopped %v after repolock; afterwards: %s",
				stopped.Round(time.Millisecond), p.stderr.String())
			s.nothingLeft()
		})
	}
}
