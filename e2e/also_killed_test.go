//go:build linux && programs && !minio

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
