//go:build linux && programs && !minio

package e2e

import (
	"os"
	"slices"
	"strconv"
	"testing"
)

// TestAlsoRefused: the last lock of six is held by another repolock. All that were taken are
// released in reverse order, and the refusal names the lock and its holder.
func TestAlsoRefused(t *testing.T) {
	s := newSystems(t)
	other := s.hold("run", "other", s.also(kindBeads)...)
	all := append(s.also(allKinds...), "--exclusive", "--repo", s.path("repo"))
	touch := []string{"--", "touch", "ran"}
	run := func(want int, flags ...string) *process {
		t.Helper()
		p := s.start(slices.Concat([]string{"run"}, all, flags, touch)...)
		p.exits(want)
		t.Logf("%v: exit code %d: %s", flags, p.code(), p.stderr.String())
		if s.exists("ran") {
			t.Errorf("%v: the command ran", flags)
		}
		if kinds := s.heldKinds(); !slices.Equal(kinds, []string{kindBeads}) || len(s.objects("repo")) > 0 {
			t.Errorf("%v: held afterwards: %v, %v", flags, kinds, s.objects("repo"))
		}
		return p
	}
	holder := "(pid " + strconv.Itoa(other.Process.Pid) + ")"

	p := run(75, "--audit", s.path("audit"))
	p.contains(s.urls[kindBeads], holder)
	s.releasedInReverse(5, -1)
	if blocked := ids(s.audited(), "lock_blocked"); len(blocked) != 1 {
		t.Errorf("%d refusals in the audit log", len(blocked))
	}
	t.Logf("audit log:%s", s.auditLog())
	run(75, "--json").contains(`"lock_blocked"`, s.urls[kindBeads], strconv.Itoa(other.Process.Pid))
	run(75, "--wait", "3s").contains(s.urls[kindBeads], holder, "still held after ")
	run(0, "--if-held", "skip").contains("skipped: ", s.urls[kindBeads])
	run(0, "--hint", "require-global").contains("skipped: ", s.urls[kindBeads])
	run(7, "-E", "7")
	s.touch("stop-other")
	other.exits(0)
	s.nothingLeft()
}

// TestAlsoUnreachable: redis is down, and the repository isn't.
func TestAlsoUnreachable(t *testing.T) {
	s := newSystems(t, kindRedis)
	s.redis.Kill()
	for _, c := range []struct {
		operation string
		flags     []string
		code      int
		runs      bool
		says      string
	}{
		{"backup", nil, 69, false, "can't be reached"},
		{"prune", nil, 69, false, "can't be reached"},
		{"backup", []string{"--if-unreachable", "run"}, 0, true, "RUNNING WITHOUT A LOCK: "},
		{"backup", []string{"--hint", "prefer-global"}, 0, true, "RUNNING WITHOUT A LOCK: "},
		{"prune", []string{"--if-unreachable", "run"}, 64, false, "exclusive"},
		{"prune", []string{"--hint", "prefer-global"}, 64, false, "exclusive"},
	} {
		first := []string{c.operation, "--ttl", ttl.String(), "--repo", s.path("repo")}
		flags := slices.Concat(first, s.also(kindRedis), c.flags)
		p := s.start(append(flags, "--", "touch", "ran")...)
		p.exits(c.code)
		p.contains(c.says)
		if ran := s.exists("ran"); ran != c.runs {
			t.Errorf("%s %v: the command ran: %v", c.operation, c.flags, ran)
		}
		_ = os.Remove(s.path("ran"))
		if left := s.objects("repo"); len(left) > 0 {
			t.Errorf("%s %v: left: %v", c.operation, c.flags, left)
		}
		t.Logf("%s %v: exit code %d: %s", c.operation, c.flags, p.code(), p.stderr.String())
	}
}
