//go:build unix && (minio || !programs)

package e2e

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/test/states"
)

func (p *process) signal(sig syscall.Signal) {
	p.s.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.s.t.Fatal(err)
	}
}

// leased returns when the lease of the one holder ends, by its object in the store.
func (s *site) leased() time.Time {
	s.t.Helper()
	p := s.start("--json", "status")
	var status struct {
		Locks []struct {
			Heartbeat time.Time `json:"last_heartbeat_at"`
			TTL       float64   `json:"ttl_seconds"`
		}
	}
	if code := p.code(); code != 0 {
		s.t.Fatalf("status: exit code %d: %s", code, p.stderr.String())
	}
	if err := json.Unmarshal([]byte(p.stderr.String()), &status); err != nil || len(status.Locks) != 1 {
		s.t.Fatalf("status: %v: %s", err, p.stderr.String())
	}
	l := status.Locks[0]
	return l.Heartbeat.Add(time.Duration(l.TTL * float64(time.Second)))
}

// stops waits until a ticking command is stopped, and checks that it doesn't tick any more.
func (s *site) stops(name string) {
	s.t.Helper()
	s.until(name+" to be stopped", hang, func() bool {
		time.Sleep(200 * time.Millisecond)
		return states.Stopped(s.pidOf(name))
	})
	last := s.last(name)
	time.Sleep(time.Second)
	if again := s.last(name); !again.Equal(last) {
		s.t.Errorf("%s is stopped, and ticks", name)
	}
}

// pidOf is the process of a ticking command.
func (s *site) pidOf(name string) int {
	s.t.Helper()
	raw, err := os.ReadFile(s.path("pid-" + name))
	if err != nil {
		s.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// gone reports whether the process in a pid file has ended.
func (s *site) gone(pidfile string) bool {
	raw, err := os.ReadFile(s.path(pidfile))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return false
	}
	return ended(pid)
}

// nothingLeft checks that no lock is in the repository.
func (s *site) nothingLeft() {
	s.t.Helper()
	if left := s.left(); len(left) > 0 {
		s.t.Errorf("left over: %q", left)
	}
}
