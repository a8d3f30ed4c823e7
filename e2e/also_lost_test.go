//go:build linux && programs

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/states"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/beads"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/locking/redis"
	"github.com/repolock/repolock/locking/towerfleet"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// TestAlsoLostOne: one of several locks is lost. The command ends, the message says which lock
// it was, and the others are released.
func TestAlsoLostOne(t *testing.T) {
	remove := func(s *systems, name string) {
		if err := os.Remove(s.path(name)); err != nil {
			s.t.Fatal(err)
		}
	}
	for kind, lose := range map[string]func(*systems){
		kindRedis: func(s *systems) { s.redis.CLI("del", "bext:lock:nightly") },
		kindPostgres: func(s *systems) {
			s.pg.PSQL("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
		},
		kindFleet: func(s *systems) { remove(s, "fleet/nightly.lock") },
		kindBeads: func(s *systems) { remove(s, "beads/.beads/.exclusive-lock") },
	} {
		t.Run(kind, func(t *testing.T) {
			s := newSystems(t)
			began := time.Now()
			flags := append(s.also(allKinds...), "--look", "1s", "--repo", s.path("repo"), "--audit", s.path("audit"))
			p := s.hold("backup", "work", flags...)
			pid := s.pidIn("pid-work")
			lost := time.Now()
			lose(s)
			p.exits(79)
			if alive(pid) {
				t.Error("the command is still there")
			}
			p.contains(s.urls[kind])
			t.Logf("repolock ended %v after the loss: %s", time.Since(lost).Round(time.Millisecond), p.stderr.String())
			t.Logf("audit log:%s", s.auditLog())
			s.releasedInReverse(1+len(allKinds), 1+slices.Index(allKinds, kind))
			for _, e := range s.audited() {
				if most := time.Since(began).Seconds() + 1; e.Held > most {
					t.Errorf("%s after %v s, and the test began %v s ago", e.Event, e.Held, most)
				}
			}
			if kind == kindRedis { // the note about the holder isn't removed with a lock that is gone
				if left := s.redis.CLI("pttl", "repolock:holder:bext:lock:nightly"); left == "-1" {
					t.Error("the note about the holder doesn't expire")
				}
				s.redis.CLI("del", "repolock:holder:bext:lock:nightly")
			}
			s.nothingLeft()
		})
	}
}

// TestAlsoKilled: repolock is killed while it holds the locks of five systems. The guard kills
// the command, and each lock frees itself as its page says. None is free while the command runs,
// but that of beads, which ends with repolock itself, at the moment at which the guard notices
// that, too.
func TestAlsoKilled(t *testing.T) {
	s := newSystems(t)
	p := s.hold("run", "work", append(s.also(allKinds...), "--ttl", ttl.String())...)
	pid := s.pidIn("pid-work")
	if kinds := s.heldKinds(); len(kinds) != len(allKinds) {
		t.Fatalf("held: %v", kinds)
	}
	tries := map[string]func() (bool, error){
		kindRedis:    s.tryBackend(s.openRedis()),
		kindPostgres: s.tryBackend(s.openPostgres()),
		kindBeads:    s.tryBackend(s.openBeads()),
		kindRepo:     s.tryRepository(),
		kindFleet:    s.tryFleet(),
	}
	for kind, try := range tries {
		if ok, err := try(); ok || err != nil {
			t.Errorf("%s before the kill: %v, %v", kind, ok, err)
		}
	}

	killed := time.Now()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	took := map[string]time.Duration{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for kind, try := range tries {
		all.Go(func() {
			s.untilFree(kind, try, pid)
			mu.Lock()
			defer mu.Unlock()
			took[kind] = time.Since(killed)
		})
	}
	s.until("the command to be dead", hang, func() bool { return !alive(pid) })
	dead := time.Since(killed)
	p.exits(-int(syscall.SIGKILL))
	left := s.redisLeft()
	all.Wait()
	if took[kindRedis] < left {
		t.Errorf("redis was free after %v, and would have expired after %v", took[kindRedis], left)
	}
	t.Logf("the command was dead %v after the kill of repolock; each lock was free after:%s",
		dead.Round(time.Millisecond), figures(rounded(took)))
	s.nothingLeft()
}

// TestAlsoGuardKeepsTheSession: PostgreSQL's lock stays held while repolock is dead and its guard
// hasn't killed the command's processes yet, and is free after that.
func TestAlsoGuardKeepsTheSession(t *testing.T) {
	s := newSystems(t)
	p := s.hold("run", "work", s.also(kindPostgres)...)
	guard := childNamed(t, p.Process.Pid, "repolock-guard")
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.until("the guard to be stopped", hang, func() bool { return states.AllStopped(guard) })
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exits(-int(syscall.SIGKILL))
	try := s.tryBackend(s.openPostgres())
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if free, err := try(); free || err != nil {
			t.Fatalf("free %v, %v, while its guard is stopped", free, err)
		}
	}
	if err := syscall.Kill(guard, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.untilFree(kindPostgres, try, s.pidIn("pid-work"))
}

// childNamed returns the child of a process by the name of its first thread.
func childNamed(t *testing.T, parent int, name string) int {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		raw, _ := os.ReadFile(path)
		rest, ok := strings.CutPrefix(string(raw[strings.IndexByte(string(raw), ' ')+1:]), "("+name+") ")
		if f := strings.Fields(rest); ok && len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("process %d has no child %s", parent, name)
	return 0
}

// untilFree tries a lock until it is free, and checks that the command is dead then.
func (s *systems) untilFree(kind string, try func() (bool, error), command int) {
	for end := time.Now().Add(hang); ; time.Sleep(20 * time.Millisecond) {
		free, err := try()
		runs := alive(command)
		switch {
		case err != nil:
			s.t.Errorf("%s: %v", kind, err)
			return
		case free && runs && kind == kindBeads:
			s.t.Logf("%s was free before the guard had killed the command", kind)
		case free && runs:
			s.t.Errorf("%s was free while the command still ran", kind)
		case !free && time.Now().After(end):
			s.t.Errorf("%s isn't free after %v", kind, hang)
			return
		}
		if free {
			return
		}
	}
}

func rounded(of map[string]time.Duration) map[string]time.Duration {
	for name, d := range of {
		of[name] = d.Round(time.Millisecond)
	}
	return of
}

// redisLeft is how long the lock in redis lasts unless it is renewed.
func (s *systems) redisLeft() time.Duration {
	s.t.Helper()
	ms, err := strconv.Atoi(s.redis.CLI("pttl", "bext:lock:nightly"))
	if err != nil {
		s.t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// pidIn reads a pid that a command has written.
func (s *site) pidIn(name string) (pid int) {
	s.t.Helper()
	for _, line := range s.lines(name) {
		pid, _ = strconv.Atoi(line)
	}
	if pid == 0 {
		s.t.Fatalf("%s has no pid", name)
	}
	return pid
}

// alive reports whether a process runs, or could go on. A zombie doesn't.
func alive(pid int) bool { return !strings.Contains("ZX", states.Of(pid)) } // "" if there is none

func (s *systems) openRedis() (locking.Backend, string) {
	target, err := redis.Parse(s.urls[kindRedis])
	return opened(s, redis.Open, target, redis.Options{}, err), target.Key
}

func (s *systems) openPostgres() (locking.Backend, string) {
	target, err := postgres.Parse(s.urls[kindPostgres])
	return opened(s, postgres.Open, target, postgres.Options{}, err), target.Key
}

func (s *systems) openBeads() (locking.Backend, string) {
	target, err := beads.Parse(s.urls[kindBeads])
	return opened(s, beads.Open, target, beads.Options{}, err), beads.Key
}

func (s *systems) openFleet(force bool) (locking.Backend, string) {
	target, err := towerfleet.Parse(s.urls[kindFleet])
	return opened(s, towerfleet.Open, target, towerfleet.Options{
		Actor: "test", Intent: "test", IntentVersion: "1", HostID: "here", Mode: towerfleet.Mutate, Force: force,
	}, err), target.Name
}

func opened[T, O any, B locking.Backend](
	s *systems, open func(T, O) (B, error), target T, o O, err error,
) locking.Backend {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := open(target, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// tryBackend returns a function that reports whether a lock is free, by taking it for a moment.
func (s *systems) tryBackend(b locking.Backend, key string) func() (bool, error) {
	return func() (bool, error) {
		h, ok, err := b.TryLock(context.Background(), key, lasting)
		if !ok || err != nil {
			return false, err
		}
		return true, b.Release(context.Background(), h)
	}
}

// tryFleet tries it without force, which must be refused until the end, and with force.
func (s *systems) tryFleet() func() (bool, error) {
	plain, forced := s.tryBackend(s.openFleet(false)), s.tryBackend(s.openFleet(true))
	return func() (bool, error) {
		if ok, err := plain(); ok || err != nil {
			return false, errors.Join(err, errors.New("tower-fleet: without --force-lock it was free, or failed"))
		}
		return forced()
	}
}

func (s *systems) tryRepository() func() (bool, error) {
	st, err := open.Store(s.t.Context(), s.path("third"))
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := replock.New(st, replock.Options{Name: "nightly", TTL: lasting, Look: lasting})
	if err != nil {
		s.t.Fatal(err)
	}
	return func() (bool, error) {
		k, err := l.Exclusive(context.Background(), "test")
		if errors.Is(err, replock.ErrHeld) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, k.Release(context.Background())
	}
}

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
