//go:build programs

package postgres

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
)

// examined checks the verdicts of a server's findings. A finding without a verdict in want must be good.
func examined(t *testing.T, b *Backend, want map[string]locking.Severity) map[string]locking.Finding {
	t.Helper()
	findings, err := b.Examine(t.Context())
	assert.OK(t, err)
	all := make(map[string]locking.Finding)
	for _, f := range findings {
		t.Logf("%+v", f)
		all[f.What] = f
		if f.Severity != want[f.What] || (f.Advice == "") != (f.Severity == locking.Good) || f.Found == "" || strings.ContainsAny(f.Found+f.Advice, "\n\t") {
			t.Errorf("%+v, want %v", f, want[f.What])
		}
	}
	for _, what := range []string{"version", "role", "pooler", "sessions", "failover", "clock", "timeouts", "silent peers"} {
		if _, ok := all[what]; ok == (want["pooler"] == locking.Bad && (what == "timeouts" || what == "silent peers")) {
			t.Errorf("about %s: %v", what, ok)
		}
	}
	return all
}

// TestExamine: each setting that matters has a finding.
func TestExamine(t *testing.T) {
	s := pgtest.New(t)
	found := examined(t, at(t, s.Address()), nil)
	for what, text := range map[string]string{
		"version": "PostgreSQL ", "role": "primary", "pooler": "none", "timeouts": "none", "silent peers": "tcp_user_timeout",
		"sessions": " of 297 are in use", "failover": "no standby", "clock": " ahead of the server's",
	} {
		assert.That(t, strings.Contains(found[what].Found, text), "%s: %q", what, found[what].Found)
	}
	found = examined(t, backend(t, socket(t, s)), nil)
	assert.That(t, strings.Contains(found["silent peers"].Found, "socket"), "%+v", found["silent peers"])
	standby := s.Standby()
	eventually(t, "the standby is connected", func() bool { return s.PSQL("select count(*) from pg_stat_replication") == "1" })
	examined(t, at(t, standby.Address()), map[string]locking.Severity{"role": locking.Bad})
	examined(t, at(t, s.Address()), map[string]locking.Severity{"failover": locking.Risky})
}

// TestExamineTimeouts: a lock outlives the timeouts that the server has for others.
func TestExamineTimeouts(t *testing.T) {
	s := pgtest.New(t, "idle_session_timeout=200ms", "statement_timeout=100s")
	b := at(t, s.Address())
	f := examined(t, b, nil)["timeouts"]
	if f.Found != "idle_session_timeout 200ms, statement_timeout 100000ms; the session of a lock turns them off" {
		t.Errorf("%+v", f)
	}
	c, err := b.open(t.Context(), "repolock", 0)
	assert.OK(t, err)
	defer c.cut()
	assert.OK(t, assert.Err(b.grant(t.Context(), c, "other", time.Minute)))
	row, err := c.query(t.Context(), "select string_agg(name || ' ' || setting, ', ' order by name collate \"C\") from pg_settings "+
		"where name ~ '^(tcp_|statement_timeout|lock_timeout|idle_.*session_timeout)'")
	if want := "idle_in_transaction_session_timeout 0, idle_session_timeout 0, lock_timeout 0, statement_timeout 0, " +
		"tcp_keepalives_count 6, tcp_keepalives_idle 30, tcp_keepalives_interval 5, tcp_user_timeout 60000"; err != nil || row[0] != want {
		t.Errorf("%v, %v, want %s", row, err, want)
	}
	h := lockcheck.Acquire(t, b, key, ttl)
	time.Sleep(time.Second)
	assert.Is(t, b.Renew(t.Context(), h), nil, "after the server's timeout")
	lockcheck.Release(t, b, h)
}

// TestPooler: a pooler is never good, and one that keeps no sessions is bad. Without a declaration any is refused,
// before anything is locked. One that lends sessions for less is found out, however large its pool is, and although
// it is declared to keep sessions.
func TestPooler(t *testing.T) {
	s := pgtest.New(t)
	for _, mode := range []string{"session", "transaction", "statement"} {
		address := pgtest.Bouncer(t, s, mode)
		f := examined(t, at(t, address), map[string]locking.Severity{"pooler": locking.Bad})["pooler"]
		assert.That(t, strings.Contains(f.Found, "for a "+mode) == (mode != "session"), "%s: %+v", mode, f)
		want := locking.Bad
		if mode == "session" {
			want = locking.Risky
		}
		examined(t, pooled(t, address), map[string]locking.Severity{"pooler": want})
		unfit(t, s, at(t, address), "pooler=session")
		if mode != "session" {
			unfit(t, s, pooled(t, address), "for a "+mode)
		}
	}
	for _, setting := range []string{"default_pool_size=1", "server_round_robin=1"} {
		unfit(t, s, pooled(t, pgtest.Bouncer(t, s, "transaction", setting)), "for a transaction")
	}
}

// TestExamineSessions: a server or a user with few sessions left is doubtful.
func TestExamineSessions(t *testing.T) {
	s := pgtest.New(t, "max_connections=12", "max_wal_senders=0")
	examined(t, at(t, s.Address()), map[string]locking.Severity{"sessions": locking.Risky})
	s = pgtest.New(t)
	s.PSQL("create role bob login connection limit 2")
	b := with(t, s, func(to *Target) { to.User = "bob" })
	if f := examined(t, b, map[string]locking.Severity{"sessions": locking.Risky})["sessions"]; !strings.Contains(f.Found, "the user has at most 2") {
		t.Errorf("%+v", f)
	}
}

// pooled is a client that declares that the pooler keeps sessions.
func pooled(t *testing.T, address string) *Backend {
	t.Helper()
	to := target(t, address)
	to.SessionPooler = true
	return backend(t, to)
}

// unfit checks that a lock is refused, says why, and isn't left held.
func unfit(t *testing.T, s *pgtest.Server, b *Backend, why string) {
	t.Helper()
	_, ok, err := b.TryLock(t.Context(), key, ttl)
	if ok || !errors.Is(err, locking.ErrUnfit) || errors.Is(err, locking.ErrUnreachable) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, %v, want ErrUnfit because of %q", ok, err, why)
	}
	nothingLeft(t, s)
}

// TestBusyPooler: other clients of the pooler don't hide its mode. A lock that TryLock can't take down is named.
func TestBusyPooler(t *testing.T) {
	s := pgtest.New(t)
	address := pgtest.Bouncer(t, s, "transaction", "default_pool_size=5")
	defer pgtest.Busy(t, s, address)()
	b := pooled(t, address)
	for range 20 {
		_, ok, err := b.TryLock(t.Context(), key, ttl)
		assert.Need(t, !ok && errors.Is(err, locking.ErrUnfit), "%v, %v", ok, err)
		if _, pid, stays := strings.Cut(err.Error(), "stays held until session "); stays {
			pid, _, _ = strings.Cut(pid, " ")
			s.PSQL("select pg_terminate_backend(" + pid + ", 60000)")
		}
	}
	nothingLeft(t, s)
}

// TestSessionPooler: by a pool in session mode a lock excludes and is excluded, and ends with the
// client's connection.
func TestSessionPooler(t *testing.T) {
	s := pgtest.New(t)
	address := pgtest.Bouncer(t, s, "session")
	a, b := pooled(t, address), at(t, s.Address())
	for range 3 {
		h := lockcheck.Acquire(t, a, key, ttl)
		lockcheck.Held(t, b, key)
		lockcheck.Held(t, a, key)
		lockcheck.Renew(t, a, h)
		assert.Equal(t, lockcheck.Seen(t, a, key).PID, os.Getpid())
		lockcheck.Release(t, a, h)
		h = lockcheck.Acquire(t, b, key, ttl)
		lockcheck.Held(t, a, key)
		lockcheck.Release(t, b, h)
	}
	lockcheck.Acquire(t, a, key, ttl)
	assert.Is(t, a.Close(), nil)
	lockcheck.Release(t, b, becomesFree(t, b))
}

// TestFullPool: a pool in session mode without a session for us makes TryLock fail in time, and that
// isn't silence.
func TestFullPool(t *testing.T) {
	s := pgtest.New(t)
	address := pgtest.Bouncer(t, s, "session", "default_pool_size=1")
	a := pooled(t, address)
	h := lockcheck.Acquire(t, a, key, ttl) // with one session there is no second connection to compare
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, ok, err := a.TryLock(ctx, key, ttl); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("%v, %v", ok, err)
	}
	lockcheck.Renew(t, a, h)
	lockcheck.Release(t, a, h)
}
