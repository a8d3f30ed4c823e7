//go:build linux && programs

package e2e

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestCPULimit: cpulimit stops and continues a command all the time. While the lock is held that changes nothing. When
// the lock is lost, repolock stops the command again at once, and kills it at the fourth SIGCONT.
func TestCPULimit(t *testing.T) {
	s := newSite(t)
	p := s.start("prune", "--ttl", ttl.String(), "--audit", s.path("log"), "--",
		"sh", "-c", `echo $$ >pid; while :; do date +%s%N >>ticks; done`)
	p.reaches("the command to run", func() bool { return len(s.times("ticks")) > 0 })
	limit := exec.Command("cpulimit", "-q", "-l", "20", "-p", strconv.Itoa(s.pidIn("pid")))
	assert.OK(t, limit.Start())
	defer func() { _ = limit.Process.Kill(); _ = limit.Wait() }()
	before := len(s.times("ticks"))
	p.reaches("the command to go on", func() bool { return len(s.times("ticks")) > before+20 })
	s.away()
	p.says("another process has continued the stopped command 4 times: repolock kills the command")
	p.exits(79)
	var actions []string
	for _, r := range s.records("log") {
		if r.Event == audit.ContinuedByOther {
			actions = append(actions, r.Action)
		}
	}
	assert.Equal(t, actions, []string{audit.CommandStopped, audit.CommandKilled})
	assert.That(t, s.gone("pid"), "the command runs")
}
