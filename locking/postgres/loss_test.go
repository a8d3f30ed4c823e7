//go:build programs

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
)

// isLost checks that a lock is lost, and that its holder is told why.
func isLost(t *testing.T, err error, why string) {
	t.Helper()
	if !errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want ErrLost because of %q", err, why)
	}
}

// TestEndOfSession: whatever ends the session, Watch notices it, Renew and Release say that the
// lock is lost, and it stays lost when another holder has it.
func TestEndOfSession(t *testing.T) {
	s := pgtest.New(t)
	p := newProxy(t, s.Address())
	for _, c := range []struct {
		name, why string
		end       func()
	}{
		{"killed", "", func() { s.Kill(); s.Start() }},
		{"restarted", "57P01", s.Restart},
		{"terminated", "57P01", func() {
			s.PSQL("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
		}},
		{"connection reset", "", p.reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := at(t, p.address()), at(t, s.Address())
			h := acquire(t, a)
			w := a.Watch(h)
			select {
			case <-w:
				t.Fatal("closed before the loss")
			default:
			}
			c.end()
			closes(t, "Watch", w)
			isLost(t, a.Renew(t.Context(), h), c.why)
			next := becomesFree(t, b)
			isLost(t, a.Renew(t.Context(), h), "")
			isLost(t, a.Release(t.Context(), h), "")
			closes(t, "Watch of a lost lock", a.Watch(h))
			held(t, a)
			if err := b.Release(t.Context(), next); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLossWithoutRenew: Release says that the lock is lost, without a Renew before it.
func TestLossWithoutRenew(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	h := acquire(t, b)
	s.Kill()
	isLost(t, b.Release(t.Context(), h), "")
}

// TestGuardNotices: the function ends when the session does, long before the next renewal.
func TestGuardNotices(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	var took time.Duration
	ran, err := locking.Guard(t.Context(), b, locking.RequireGlobal, key, ttl, func(ctx context.Context) error {
		killed := time.Now()
		s.Kill()
		<-ctx.Done()
		took = time.Since(killed)
		if !errors.Is(context.Cause(ctx), locking.ErrLost) {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		return nil
	})
	if !ran {
		t.Error("it didn't run")
	}
	isLost(t, err, "")
	if took > ttl/4 {
		t.Errorf("noticed after %v", took)
	}
	t.Logf("noticed %v after the kill", took)
}

// TestPaused: no method waits for a stopped server longer than its context, and the lock lasts.
func TestPaused(t *testing.T) {
	s := pgtest.New(t)
	a, b := at(t, s.Address()), at(t, s.Address())
	h := acquire(t, a)
	seen, err := b.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
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
		if ok || !errors.Is(err, locking.ErrUnreachable) {
			t.Errorf("%v, %v", ok, err)
		}
		return err
	})
	bounded("inspect", func(ctx context.Context) error { _, err := b.Inspect(ctx, key); return err })
	bounded("break", func(ctx context.Context) error { _, err := b.Break(ctx, seen, false); return err })
	bounded("examine", func(ctx context.Context) error { _, err := b.Examine(ctx); return err })
	s.Cont()
	if err := a.Renew(t.Context(), h); err != nil {
		t.Errorf("renew of a server that goes on: %v", err)
	}
	held(t, b)
	s.Stop()
	bounded("release", func(ctx context.Context) error { return a.Release(ctx, h) })
	s.Cont()
	if err := b.Release(t.Context(), becomesFree(t, b)); err != nil {
		t.Error(err)
	}
	isLost(t, a.Release(t.Context(), h), "")
}

// TestCutOff: a holder that is cut off can't renew, and doesn't know whether it has the lock. It
// has it, when the network is back before the server has noticed.
func TestCutOff(t *testing.T) {
	s := pgtest.New(t)
	p := newProxy(t, s.Address())
	a, b := at(t, p.address()), at(t, s.Address())
	h := acquire(t, a)
	p.cut(true)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := a.Renew(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
			t.Errorf("renew: %v", err)
		}
		cancel()
	}
	held(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	if err := a.Release(ctx, h); err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "when it notices") {
		t.Errorf("release: %v", err)
	}
	cancel()
	held(t, b)
	p.reset() // the server notices
	if err := b.Release(t.Context(), becomesFree(t, b)); err != nil {
		t.Error(err)
	}
}

// TestLostReply: if the answer to a statement is lost, the session is ended: its lock doesn't stay held.
func TestLostReply(t *testing.T) {
	s := pgtest.New(t)
	for _, statement := range []string{"pg_is_in_recovery", "set_config", "pg_try_advisory_lock", "exists (select from pg_locks"} {
		t.Run(statement, func(t *testing.T) {
			p := newProxy(t, s.Address())
			a, b := at(t, p.address()), at(t, s.Address())
			p.dropAfter(statement)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, ok, err := a.TryLock(ctx, key, ttl)
			if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || errors.Is(err, locking.ErrUnfit) {
				t.Errorf("%v, %v", ok, err)
			}
			t.Log(err)
			p.dropAfter("")
			// The lock can be our own: it must not stay.
			for _, c := range []locking.Backend{b, a} {
				var h locking.Handle
				eventually(t, "the lock is free", func() bool {
					h, ok, err = c.TryLock(t.Context(), key, ttl)
					if err != nil {
						t.Fatal(err)
					}
					return ok
				})
				if err := c.Release(t.Context(), h); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestLostReplyOfRelease: the lock is free although Release doesn't know.
func TestLostReplyOfRelease(t *testing.T) {
	s := pgtest.New(t)
	p := newProxy(t, s.Address())
	a, b := at(t, p.address()), at(t, s.Address())
	h := acquire(t, a)
	p.dropAfter("pg_advisory_unlock")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := a.Release(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("release: %v", err)
	}
	if err := b.Release(t.Context(), becomesFree(t, b)); err != nil {
		t.Error(err)
	}
}
