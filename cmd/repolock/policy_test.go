package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestPolicy: if the policy allows it, a command is skipped when its lock is held, and runs without its lock when the
// store has answered nothing. A command that needs the exclusive lock never runs without it.
func TestPolicy(t *testing.T) {
	held := session.NotAcquired(&replock.HeldError{}, true)
	silent, answered := session.NotAcquired(store.ErrUnreachable, false), session.NotAcquired(store.ErrUnreachable, true)
	for _, c := range []struct {
		policy      policyFlags
		mode        replock.Mode
		refused     bool // by settle
		skips, runs bool
		none, bare  bool // no lock is needed: with a repository, and without one
	}{
		{policyFlags{}, replock.Exclusive, false, false, false, false, false},
		{policyFlags{IfHeld: "wait"}, replock.Shared, false, false, false, false, false},
		{policyFlags{IfHeld: "skip"}, replock.Exclusive, false, true, false, false, false},
		{policyFlags{IfUnreachable: "run"}, replock.Shared, false, false, true, false, false},
		{policyFlags{IfUnreachable: "fail"}, replock.Shared, false, false, false, false, false},
		{policyFlags{IfUnreachable: "run"}, replock.Exclusive, true, false, true, false, false},
		{policyFlags{Hint: "require-global"}, replock.Exclusive, false, true, false, false, false},
		{policyFlags{Hint: "prefer-global"}, replock.Shared, false, true, true, false, true},
		{policyFlags{Hint: "prefer-global"}, replock.Exclusive, true, true, true, false, true},
		{policyFlags{Hint: "node-local"}, replock.Shared, false, false, false, true, true},
		{policyFlags{Hint: "node-local"}, replock.Exclusive, true, false, false, true, true},
		{policyFlags{Hint: "require-global", IfHeld: "skip"}, replock.Shared, true, true, false, false, false},
		{policyFlags{Hint: "require-global", IfUnreachable: "fail"}, replock.Shared, true, false, false, false, false},
	} {
		p := c.policy
		err := p.settle(c.mode)
		assert.That(t, (err != nil) == c.refused, "%+v of %v: %v", c.policy, c.mode, err)
		assert.That(t, p.policy().Skips(held) == c.skips && p.policy().RunsUnlocked(silent) == c.runs && !p.policy().Skips(silent) && !p.policy().Skips(replock.ErrHeld),
			"%+v skips: %t, runs: %t", c.policy, p.policy().Skips(held), p.policy().RunsUnlocked(silent))
		assert.That(t, !p.policy().RunsUnlocked(answered) && !p.policy().RunsUnlocked(held) && !p.policy().RunsUnlocked(store.ErrUnreachable),
			"%+v runs although the store has answered, or the command had its lock", c.policy)
		none, why := p.needsNone(true)
		bare, _ := p.needsNone(false)
		assert.That(t, none == c.none && bare == c.bare && why == "", "%+v needs no lock: %t, %t, %s", c.policy, none, bare, why)
	}
	_, err := policyFlags{IfUnreachable: "run"}.without(nil, nil, session.NotAcquired(store.ErrNoHost, false))
	assert.That(t, errors.Is(err, store.ErrNoHost) && strings.Contains(fault.Advice(err), "an unknown name isn't an outage; check the name"), "%v: %s", err, fault.Advice(err))
}

// TestNoLockRefusesItsFlags: --no-lock can't be combined with a flag that does nothing without a lock.
func TestNoLockRefusesItsFlags(t *testing.T) {
	for _, flag := range []string{
		"--ttl=1m", "--look=1s", "--if-held=skip", "--if-unreachable=run", "--hint=node-local", "--on-lost=warn", "--resume-for=1m",
		"--held-exit-code=9", "--metadata=a=b", "--audit=log", "--metrics-file=metrics", "--job=j", "--settle=1s", "--force-lock",
		"--request-id=req_x", "--actor=a", "--intent-version=1",
	} {
		name, _, _ := strings.Cut(flag, "=")
		code, stdout, stderr := call("--config=", "run", "--no-lock", flag, "--", "echo", "ran")
		assert.That(t, code == fault.ExitUsage && stdout == "" && strings.Contains(stderr, "there is no lock for "+name+": "), "%s: exit code %d: %s%s", flag, code, stdout, stderr)
	}
}
