//go:build programs

package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
)

// connected is a session for the lock "k", and its server.
func connected(t *testing.T) (*pgtest.Server, *Backend, *conn) {
	t.Helper()
	s := pgtest.New(t)
	target, err := Parse("postgres://postgres@" + s.Address() + "/postgres?sslmode=disable&key=k")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(target, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.connect(t.Context(), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cut()
		_ = b.Close()
	})
	return s, b, c
}

// TestGrantIsVerified: a lock that another session was granted is refused, and taken down.
func TestGrantIsVerified(t *testing.T) {
	s, b, c := connected(t)
	if _, err := b.grant(t.Context(), c, "k", time.Minute); err != nil {
		t.Fatal(err)
	}
	hash := s.PSQL("select hashtext('k')")
	if left := c.takeDown(t.Context(), hash, "1"); !strings.Contains(left, "session 1 ends") {
		t.Errorf("of another session: %q", left)
	}
	if left := c.takeDown(t.Context(), hash, s.PSQL("select pid from pg_locks where locktype = 'advisory'")); left != "" {
		t.Errorf("of this session: %q", left)
	}
	if held := s.PSQL("select count(*) from pg_locks where locktype = 'advisory'"); held != "0" {
		t.Errorf("%s locks are left", held)
	}
}

// TestServerWithoutLocks: a server that grants locks and doesn't keep them, as CockroachDB does, is
// unfit.
func TestServerWithoutLocks(t *testing.T) {
	s, b, _ := connected(t)
	s.PSQL("create schema fake; create function fake.pg_try_advisory_lock(bigint) returns bool language sql as 'select true'")
	b.config.RuntimeParams["search_path"] = "fake, pg_catalog"
	if _, ok, err := b.TryLock(t.Context(), "k", time.Minute); ok || !errors.Is(err, locking.ErrUnfit) {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestSettingsOfTheSession: the server has taken the timeouts.
func TestSettingsOfTheSession(t *testing.T) {
	_, b, c := connected(t)
	if _, err := b.grant(t.Context(), c, "k", time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "6", "tcp_user_timeout": "60000",
		"statement_timeout": "0", "lock_timeout": "0", "idle_session_timeout": "0", "idle_in_transaction_session_timeout": "0",
	} {
		row, err := c.query(t.Context(), "select setting from pg_settings where name = $1", name)
		if err != nil || row[0] != want {
			t.Errorf("%s: %v, %v, want %s", name, row, err, want)
		}
	}
}

// TestTwoKeysOfOneHash: two keys with one hash are one lock.
func TestTwoKeysOfOneHash(t *testing.T) {
	s, b, _ := connected(t)
	pair := strings.Split(s.PSQL(`select min(k), max(k) from (select 'key' || n as k from generate_series(1, 300000) as n) as keys
		group by hashtext(k) having count(*) > 1 limit 1`), "|")
	if len(pair) != 2 {
		t.Fatalf("no two of 300,000 keys have one hash: %q", pair)
	}
	h, ok, err := b.TryLock(t.Context(), pair[0], time.Minute)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := b.TryLock(t.Context(), pair[1], time.Minute); ok || err != nil {
		t.Errorf("%q beside %q: %v, %v", pair[1], pair[0], ok, err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}
