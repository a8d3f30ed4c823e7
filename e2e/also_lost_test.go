//go:build linux && programs

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// TestAlsoLostOne: if one of several locks is lost, the command ends, the message names the lock, and the
// others are released.
func TestAlsoLostOne(t *testing.T) {
	remove := func(s *systems, name string) {
		assert.OK(s.t, os.Remove(s.path(name)))
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
			lose(s)
			p.exits(79)
			assert.That(t, ended(pid), "the command is still there")
			p.contains(s.urls[kind])
			s.releasedInReverse(1+len(allKinds), 1+slices.Index(allKinds, kind))
			for _, e := range s.records("audit") {
				if held := e.HeldDurationSeconds; held != nil {
					assert.That(t, *held <= time.Since(began).Seconds()+1, "%s: held for %v s, longer than the test lasts", e.Event, *held)
				}
			}
			if kind == kindRedis { // the note about the holder isn't removed with a lock that is gone
				assert.That(t, s.redis.CLI("pttl", "repolock:holder:bext:lock:nightly") != "-1", "the note doesn't expire")
				s.redis.CLI("del", "repolock:holder:bext:lock:nightly")
			}
			s.nothingLeft()
		})
	}
}

// TestAlsoKilled: repolock is killed while it holds the locks of five systems, and its guard is stopped at
// first. While the command runs, each lock stays held until its ttl, and PostgreSQL's beyond that. Only the
// lock of beads ends with repolock itself. Then the guard kills the command, and each lock frees itself as its
// page promises.
func TestAlsoKilled(t *testing.T) {
	s := newSystems(t)
	p := s.hold("run", "work", append(s.also(allKinds...), "--ttl", ttl.String())...)
	pid := s.pidIn("pid-work")
	assert.Equal(t, s.heldKinds(), allKinds, "held")
	guard, err := strconv.Atoi(strings.TrimSpace(in(t, ".", fmt.Sprintf("pgrep -P %d -x lock-guard", p.Process.Pid))))
	assert.OK(t, err)
	assert.OK(t, syscall.Kill(guard, syscall.SIGSTOP))
	s.until("the guard to be stopped", func() bool { return states.AllStopped(guard) })
	killed := time.Now()
	p.signal(syscall.SIGKILL)
	p.exits(-int(syscall.SIGKILL))
	left, err := time.ParseDuration(s.redis.CLI("pttl", "bext:lock:nightly") + "ms")
	assert.OK(t, err)
	for _, kind := range []string{kindRedis, kindRepo, kindFleet, kindPostgres, kindBeads} {
		code := s.try(kind, pid)
		if kind == kindPostgres || time.Since(killed) < ttl {
			assert.That(t, (code == 75) != (kind == kindBeads), "%s, while the guard is stopped: exit code %d", kind, code)
		}
	}
	assert.OK(t, syscall.Kill(guard, syscall.SIGCONT))
	s.until("the command to be dead", func() bool { return ended(pid) })
	for _, kind := range allKinds {
		s.until(kind+" to be free", func() bool {
			time.Sleep(200 * time.Millisecond)
			return s.try(kind, pid) == 0
		})
		took := time.Since(killed)
		assert.That(t, kind != kindRedis || took >= left, "redis was free after %v, and would have expired after %v", took, left)
	}
	s.nothingLeft()
}

// beside is the exit code of a try that gets a lock while the command of its holder runs.
const beside = 9

// try takes a lock for a moment, and returns the exit code: 0, 75 or beside. A lock of tower-fleet is
// never free without --force-lock.
func (s *systems) try(kind string, command int) int {
	s.t.Helper()
	run := func(flags ...string) int {
		look := fmt.Sprintf(`case $(cut -d " " -f 3 /proc/%d/stat) in [RSDT]) exit %d ;; esac`, command, beside)
		return s.start(slices.Concat([]string{"run"}, s.also(kind), flags, []string{"--ttl", lasting.String(), "--", "sh", "-c", look})...).code()
	}
	if kind != kindFleet {
		return run()
	}
	assert.Equal(s.t, run(), 75, "tower-fleet without --force-lock")
	return run("--force-lock")
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
			s.ranWithin("work", away)
			assert.That(t, ended(pid), "the command is still there")
			p.contains(c.says, s.urls[c.kind])
			if c.kind == kindRedis {
				s.redis.Restart()
			} else {
				s.pg.Kill()
				s.pg.Start()
			}
			s.nothingLeft()
		})
	}
}
