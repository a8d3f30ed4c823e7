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
	"github.com/repolock/repolock/locking/postgres"
)

// pooled is a client that declares that the pooler keeps sessions.
func pooled(t *testing.T, address string) *postgres.Backend {
	t.Helper()
	to := target(t, address)
	to.SessionPooler = true
	return backend(t, to)
}

// unfit checks that a lock is refused, says why, and isn't left held.
func unfit(t *testing.T, s *pgtest.Server, b *postgres.Backend, why string) {
	t.Helper()
	_, ok, err := b.TryLock(t.Context(), key, ttl)
	if ok || !errors.Is(err, locking.ErrUnfit) || errors.Is(err, locking.ErrUnreachable) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, %v, want ErrUnfit because of %q", ok, err, why)
	}
	if left := s.PSQL("select count(*) from pg_locks where locktype = 'advisory'"); left != "0" {
		t.Errorf("%s locks are left", left)
	}
}

// TestPooler: without a declaration any pooler is refused, before anything is locked.
func TestPooler(t *testing.T) {
	s := pgtest.New(t)
	for _, mode := range []string{"session", "transaction", "statement"} {
		unfit(t, s, at(t, pgtest.Bouncer(t, s, mode)), "pooler=session")
	}
}

// TestDeclaredPooler: a pooler that lends sessions for less is found out, however large its pool
// is, and although it is declared to keep sessions.
func TestDeclaredPooler(t *testing.T) {
	s := pgtest.New(t)
	for _, setting := range []string{"default_pool_size=1", "default_pool_size=20", "server_round_robin=1"} {
		unfit(t, s, pooled(t, pgtest.Bouncer(t, s, "transaction", setting)), "for a transaction")
	}
	unfit(t, s, pooled(t, pgtest.Bouncer(t, s, "statement")), "for a statement")
}

// TestBusyPooler: other clients of the pooler don't hide its mode.
func TestBusyPooler(t *testing.T) {
	s := pgtest.New(t)
	address := pgtest.Bouncer(t, s, "transaction", "default_pool_size=5")
	defer pgtest.Busy(t, s, address)()
	b := pooled(t, address)
	for range 20 {
		if _, ok, err := b.TryLock(t.Context(), key, ttl); ok || !errors.Is(err, locking.ErrUnfit) {
			t.Errorf("%v, %v", ok, err)
		}
	}
	if left := s.PSQL("select count(*) from pg_locks where locktype = 'advisory'"); left != "0" {
		t.Errorf("%s locks are left", left)
	}
}

// TestSessionPooler: by a pool in session mode a lock excludes and is excluded, and ends with the
// client's connection.
func TestSessionPooler(t *testing.T) {
	s := pgtest.New(t)
	address := pgtest.Bouncer(t, s, "session")
	a, b := pooled(t, address), at(t, s.Address())
	for range 3 {
		h := acquire(t, a)
		held(t, b)
		held(t, a)
		if err := a.Renew(t.Context(), h); err != nil {
			t.Error(err)
		}
		if info, err := a.Inspect(t.Context(), key); err != nil || info == nil || info.Host != "here" || info.PID != 4711 {
			t.Errorf("%+v, %v", info, err)
		}
		if err := a.Release(t.Context(), h); err != nil {
			t.Error(err)
		}
		h = acquire(t, b)
		held(t, a)
		if err := b.Release(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	acquire(t, a)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Release(t.Context(), becomesFree(t, b)); err != nil {
		t.Error(err)
	}
}

// TestFullPool: a pool in session mode without a session for us makes TryLock fail in time, and that
// isn't silence.
func TestFullPool(t *testing.T) {
	s := pgtest.New(t)
	address := pgtest.Bouncer(t, s, "session", "default_pool_size=1")
	a := pooled(t, address)
	h := acquire(t, a) // with one session there is no second connection to compare
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, ok, err := a.TryLock(ctx, key, ttl); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("%v, %v", ok, err)
	}
	if err := a.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := a.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}
