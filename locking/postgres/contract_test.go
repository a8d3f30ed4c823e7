//go:build programs

package postgres

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract on a real server.
func TestConformance(t *testing.T) {
	s := pgtest.New(t)
	lockingtest.Run(t, lockingtest.Config{
		Rounds: rounds.Fewer(1000, 100),
		New:    func(t *testing.T) locking.Backend { return at(t, s.Address()) },
		Lose: func(t *testing.T, key string) {
			t.Helper()
			ended := s.PSQL("select pg_terminate_backend(pid, 60000) from pg_locks where locktype = 'advisory' and granted")
			assert.Equal(t, ended, "t", "sessions with a lock that were ended")
		},
		Notice:  time.Second,
		Keys:    []string{"a", "nightly backup: höst/db 'x' \\ \"y\" $1 \n", strings.Repeat("k", 512)},
		BadKeys: []string{"", "a\x00b", "\xff", strings.Repeat("k", 513)},
	})
	nothingLeft(t, s)
}

// psqlHolds runs psql until stop is called. It takes the lock by a statement.
func psqlHolds(t *testing.T, s *pgtest.Server, statement string) (stop func()) {
	t.Helper()
	c := s.Client("-d", "postgres")
	in, err := c.StdinPipe()
	assert.OK(t, err)
	out, err := c.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, c.Start())
	_, _ = io.WriteString(in, statement+";\n")
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "t\n" || err != nil {
		t.Fatalf("psql: %q, %v", line, err)
	}
	stop = func() {
		_ = in.Close()
		_ = c.Wait()
	}
	t.Cleanup(stop)
	return stop
}

const psqlLock = "select pg_try_advisory_lock(hashtext('nightly')::bigint)"

// TestPSQL: a lock excludes psql's, and is excluded by it.
func TestPSQL(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	h := lockcheck.Acquire(t, b, key, ttl)
	assert.Equal(t, s.PSQL(psqlLock), "f", "psql beside ours")
	name := s.PSQL("select application_name from pg_stat_activity join pg_locks using (pid) where locktype = 'advisory'")
	assert.Equal(t, name, b.name(key), "what psql sees")
	if info := lockcheck.Seen(t, b, key); info.Key != key || info.Host != clip(b.host, 24) || info.PID != os.Getpid() || !strings.HasPrefix(info.Holder, "repolock, session ") {
		t.Errorf("ours: %+v", info)
	}
	lockcheck.Release(t, b, h)
	stop := psqlHolds(t, s, psqlLock)
	lockcheck.Held(t, b, key)
	info := lockcheck.Seen(t, b, key)
	if !strings.HasPrefix(info.Holder, "psql, session ") || !strings.HasSuffix(info.Holder, " of user postgres") ||
		info.Host != "" || info.PID != 0 || info.Stale || info.Acquired.IsZero() {
		t.Errorf("%+v", info)
	}
	stop()
	lockcheck.Release(t, b, becomesFree(t, b))
}

// TestShared: a shared lock of another program excludes ours.
func TestShared(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	psqlHolds(t, s, "select pg_try_advisory_lock_shared(hashtext('nightly')::bigint)")
	lockcheck.Held(t, b, key)
	holder := lockcheck.Seen(t, b, key).Holder
	assert.That(t, strings.HasSuffix(holder, "(shared)"), "%s", holder)
}

// TestPrepared: a prepared transaction holds a lock without a session, and can't be broken.
func TestPrepared(t *testing.T) {
	s := pgtest.New(t, "max_prepared_transactions=1")
	b := at(t, s.Address())
	s.PSQL("begin; select pg_advisory_xact_lock(hashtext('nightly')::bigint); prepare transaction 'p'")
	lockcheck.Held(t, b, key)
	info := lockcheck.Seen(t, b, key)
	assert.That(t, info.Holder == "a prepared transaction", "%+v", info)
	if broken, err := b.Break(t.Context(), info, false); broken || err == nil || !strings.Contains(err.Error(), "pg_prepared_xacts") {
		t.Errorf("%v, %v", broken, err)
	}
	s.PSQL("rollback prepared 'p'")
	lockcheck.Release(t, b, lockcheck.Acquire(t, b, key, ttl))
}

// TestOtherDatabase: the lock is of one database, and of one form of key.
func TestOtherDatabase(t *testing.T) {
	s := pgtest.New(t)
	a := at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, ttl)
	b := with(t, s, func(to *Target) { to.Database = "template1" })
	lockcheck.Free(t, b, key)
	lockcheck.Release(t, b, lockcheck.Acquire(t, b, key, ttl))
	got := s.PSQL("select pg_try_advisory_lock(n >> 31, n) from (select hashtext('nightly') as n) as hash")
	assert.Equal(t, got, "t", "two keys of 32 bits")
	lockcheck.Release(t, a, h)
}

// TestBreakNeedsRights: a user can end sessions of its own; others need a role, which the error names.
func TestBreakNeedsRights(t *testing.T) {
	s := pgtest.New(t)
	s.PSQL("create role bob login; create role carol login; create role dave login; grant pg_signal_backend to dave")
	as := func(user string) *Backend {
		return with(t, s, func(to *Target) { to.User = user })
	}
	bob, carol, dave := as("bob"), as("carol"), as("dave")
	broken := func(b *Backend, seen *locking.Info, want bool) {
		t.Helper()
		got, err := b.Break(t.Context(), seen, false)
		if got != want || want != (err == nil) || !want && (!errors.Is(err, locking.ErrPermission) || !strings.Contains(err.Error(), "pg_signal_backend")) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	h := lockcheck.Acquire(t, bob, key, ttl)
	full := lockcheck.Seen(t, bob, key)
	hidden := lockcheck.Seen(t, carol, key)
	assert.That(t, hidden.Host == full.Host && hidden.Acquired.IsZero(), "what another user sees: %+v", hidden)
	broken(carol, hidden, false)
	broken(dave, hidden, false)
	s.PSQL("grant pg_read_all_stats to carol, dave")
	broken(carol, full, false)
	lockcheck.Renew(t, bob, h)
	broken(dave, full, true)
	isLost(t, bob.Renew(t.Context(), h), "")
	lockcheck.Acquire(t, bob, key, ttl)
	full = lockcheck.Seen(t, bob, key)
	broken(bob, full, true)
	lockcheck.Acquire(t, at(t, s.Address()), key, ttl)
	full = lockcheck.Seen(t, dave, key)
	broken(dave, full, false) // a superuser's
}

// TestBreakComparesBoth: neither the number of a session nor its beginning is enough.
func TestBreakComparesBoth(t *testing.T) {
	s := pgtest.New(t)
	a := at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, ttl)
	seen := lockcheck.Seen(t, a, key)
	pid, began, _ := strings.Cut(seen.Revision, "@")
	idle := psqlHolds(t, s, "select true") // a session that holds nothing
	defer idle()
	other := strings.ReplaceAll(s.PSQL("select pid || '@' || "+`to_char(backend_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') `+
		"from pg_stat_activity where application_name = 'psql' and pid <> pg_backend_pid()"), "\n", "")
	for _, revision := range []string{other, "1@" + began, pid + "@2000-01-01T00:00:00.000000Z"} {
		lockcheck.Breaks(t, a, &locking.Info{Key: key, Revision: revision}, false, false)
	}
	for _, revision := range []string{"", "x@y", pid} {
		if broken, err := a.Break(t.Context(), &locking.Info{Key: key, Revision: revision}, false); broken || err == nil {
			t.Errorf("%s: %v, %v", revision, broken, err)
		}
	}
	lockcheck.Renew(t, a, h)
	if got := s.PSQL("select count(*) from pg_stat_activity where application_name = 'psql' and pid <> pg_backend_pid()"); got != "1" {
		t.Errorf("%s idle sessions", got)
	}
}

// TestClose: nothing is left after Close, and a closed backend acquires nothing.
func TestClose(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	var handles []locking.Handle
	for i := range 5 {
		h := lockcheck.Acquire(t, b, fmt.Sprint(i), ttl)
		handles = append(handles, h)
	}
	s.Stop()
	assert.Is(t, b.Close(), nil)
	s.Cont()
	eventually(t, "no session is left", func() bool {
		return s.PSQL("select count(*) from pg_stat_activity where application_name like 'repolock%'") == "0"
	})
	for _, h := range handles {
		isLost(t, b.Renew(t.Context(), h), "")
		isLost(t, b.Release(t.Context(), h), "")
	}
	_ = lockcheck.Fails(t.Context(), t, b, key)
	assert.Is(t, b.Close(), nil)
}

// TestGrantIsVerified: a lock that another session was granted is refused, and taken down.
func TestGrantIsVerified(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	c, err := b.open(t.Context(), "test", ttl)
	assert.OK(t, err)
	defer c.cut()
	assert.OK(t, assert.Err(b.grant(t.Context(), c, key, ttl)))
	if left := c.takeDown(t.Context(), key, "1"); !strings.Contains(left, "session 1 ends") {
		t.Errorf("of another session: %q", left)
	}
	own := s.PSQL("select pid from pg_locks where locktype = 'advisory'")
	assert.Equal(t, c.takeDown(t.Context(), key, own), "", "of this session")
	nothingLeft(t, s)
}

// TestServerWithoutLocks: a server that grants locks and doesn't keep them, as CockroachDB does, is
// unfit.
func TestServerWithoutLocks(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	s.PSQL("create schema fake; create function fake.pg_try_advisory_lock(bigint) returns bool language sql as 'select true'")
	b.config.RuntimeParams["search_path"] = "fake, pg_catalog"
	assert.Is(t, lockcheck.Fails(t.Context(), t, b, key), locking.ErrUnfit)
}
