//go:build programs

package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/tcpproxy"
	"github.com/repolock/repolock/locking"
)

// TestEndOfSession: whatever ends the session, Watch notices it, Renew and Release say that the
// lock is lost, and it stays lost when another holder has it.
func TestEndOfSession(t *testing.T) {
	s := pgtest.New(t)
	p := tcpproxy.New(t, s.Address())
	for _, c := range []struct {
		name, why string
		renews    bool // before the release
		end       func()
	}{
		{"killed", "", false, func() { s.Kill(); s.Start() }},
		{"restarted", "57P01", true, s.Restart},
		{"terminated", "57P01", true, func() {
			s.PSQL("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
		}},
		{"connection reset", "", true, p.Reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := at(t, p.Address()), at(t, s.Address())
			h := lockcheck.Acquire(t, a, key, ttl)
			w := a.Watch(h)
			select {
			case <-w:
				t.Fatal("closed before the loss")
			default:
			}
			c.end()
			closes(t, "Watch", w)
			if c.renews {
				isLost(t, a.Renew(t.Context(), h), c.why)
			}
			next := becomesFree(t, b)
			if c.renews {
				isLost(t, a.Renew(t.Context(), h), "")
			}
			isLost(t, a.Release(t.Context(), h), "")
			closes(t, "Watch of a lost lock", a.Watch(h))
			lockcheck.Held(t, a, key)
			lockcheck.Release(t, b, next)
		})
	}
}

// TestPaused: no method waits for a stopped server longer than its context, and the lock lasts.
func TestPaused(t *testing.T) {
	s := pgtest.New(t)
	a, b := at(t, s.Address()), at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, ttl)
	seen := lockcheck.Seen(t, b, key)
	s.Stop()
	bounded := func(what string, call func(context.Context) error) {
		t.Helper()
		const bound = 300 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		begun := time.Now()
		err := call(ctx)
		if err == nil || errors.Is(err, locking.ErrLost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%s took %v", what, took)
		} else {
			t.Logf("%s took %v of %v: %v", what, took, bound, err)
		}
	}
	bounded("renew", func(ctx context.Context) error { return a.Renew(ctx, h) })
	bounded("renew again", func(ctx context.Context) error { return a.Renew(ctx, h) })
	bounded("lock", func(ctx context.Context) error {
		_, ok, err := b.TryLock(ctx, key, ttl)
		assert.That(t, !ok && errors.Is(err, locking.ErrUnreachable), "%v, %v", ok, err)
		return err
	})
	bounded("inspect", func(ctx context.Context) error { _, err := b.Inspect(ctx, key); return err })
	bounded("break", func(ctx context.Context) error { _, err := b.Break(ctx, seen, false); return err })
	bounded("examine", func(ctx context.Context) error { _, err := b.Examine(ctx); return err })
	s.Cont()
	assert.Is(t, a.Renew(t.Context(), h), nil, "renew of a server that goes on")
	lockcheck.Held(t, b, key)
	s.Stop()
	bounded("release", func(ctx context.Context) error { return a.Release(ctx, h) })
	s.Cont()
	lockcheck.Release(t, b, becomesFree(t, b))
	isLost(t, a.Release(t.Context(), h), "")
}

// TestCutOff: a holder that is cut off can't renew, and doesn't know whether it has the lock. It
// has it, when the network is back before the server has noticed.
func TestCutOff(t *testing.T) {
	s := pgtest.New(t)
	p := tcpproxy.New(t, s.Address())
	a, b := at(t, p.Address()), at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, ttl)
	p.Mute()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := a.Renew(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
			t.Errorf("renew: %v", err)
		}
		cancel()
	}
	lockcheck.Held(t, b, key)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	if err := a.Release(ctx, h); err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "when it notices") {
		t.Errorf("release: %v", err)
	}
	cancel()
	lockcheck.Held(t, b, key)
	p.Reset() // the server notices
	lockcheck.Release(t, b, becomesFree(t, b))
}

// TestLostReply: if the answer to a statement is lost, the session is ended: its lock doesn't stay held.
func TestLostReply(t *testing.T) {
	s := pgtest.New(t)
	for _, statement := range []string{"pg_is_in_recovery", "set_config", "pg_try_advisory_lock", "exists (select from pg_locks"} {
		t.Run(statement, func(t *testing.T) {
			p := tcpproxy.New(t, s.Address())
			a, b := at(t, p.Address()), at(t, s.Address())
			p.Lose(statement, tcpproxy.Swallow)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, ok, err := a.TryLock(ctx, key, ttl)
			if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || errors.Is(err, locking.ErrUnfit) {
				t.Errorf("%v, %v", ok, err)
			}
			t.Log(err)
			lockcheck.Release(t, b, becomesFree(t, b)) // the lock can be our own: it must not stay
			lockcheck.Release(t, a, becomesFree(t, a))
		})
	}
}
