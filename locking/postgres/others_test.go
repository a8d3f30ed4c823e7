//go:build programs

package postgres_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/postgres"
)

// psqlHolds runs psql until stop is called. It takes the lock by a statement.
func psqlHolds(t *testing.T, s *pgtest.Server, statement string) (stop func()) {
	t.Helper()
	c := s.Client("-d", "postgres")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
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
	h := acquire(t, b)
	if got := s.PSQL(psqlLock); got != "f" {
		t.Errorf("psql beside ours: %q", got)
	}
	if got := s.PSQL("select application_name from pg_stat_activity join pg_locks using (pid) where locktype = 'advisory'"); got != "repolock: nightly on here pid 4711" {
		t.Errorf("psql sees %q", got)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	stop := psqlHolds(t, s, psqlLock)
	held(t, b)
	info, err := b.Inspect(t.Context(), key)
	if err != nil || info == nil || !strings.HasPrefix(info.Holder, "psql, session ") || !strings.HasSuffix(info.Holder, " of user postgres") ||
		info.Host != "" || info.PID != 0 || info.Stale || info.Acquired.IsZero() {
		t.Errorf("%+v, %v", info, err)
	}
	stop()
	if err := b.Release(t.Context(), becomesFree(t, b)); err != nil {
		t.Error(err)
	}
}

// TestShared: a shared lock of another program excludes ours.
func TestShared(t *testing.T) {
	s := pgtest.New(t)
	b := at(t, s.Address())
	psqlHolds(t, s, "select pg_try_advisory_lock_shared(hashtext('nightly')::bigint)")
	held(t, b)
	info, err := b.Inspect(t.Context(), key)
	if err != nil || info == nil || !strings.HasSuffix(info.Holder, "(shared)") {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestPrepared: a prepared transaction holds a lock without a session, and can't be broken.
func TestPrepared(t *testing.T) {
	s := pgtest.New(t, "max_prepared_transactions=1")
	b := at(t, s.Address())
	s.PSQL("begin; select pg_advisory_xact_lock(hashtext('nightly')::bigint); prepare transaction 'p'")
	held(t, b)
	info, err := b.Inspect(t.Context(), key)
	if err != nil || info == nil || info.Holder != "a prepared transaction" {
		t.Fatalf("%+v, %v", info, err)
	}
	if broken, err := b.Break(t.Context(), info, false); broken || err == nil || !strings.Contains(err.Error(), "pg_prepared_xacts") {
		t.Errorf("%v, %v", broken, err)
	}
	s.PSQL("rollback prepared 'p'")
	if err := b.Release(t.Context(), acquire(t, b)); err != nil {
		t.Error(err)
	}
}

// TestOtherDatabase: the lock is of one database, and of one form of key.
func TestOtherDatabase(t *testing.T) {
	s := pgtest.New(t)
	a := at(t, s.Address())
	h := acquire(t, a)
	b := with(t, s, func(to *postgres.Target) { to.Database = "template1" })
	if info, err := b.Inspect(t.Context(), key); info != nil || err != nil {
		t.Errorf("%+v, %v", info, err)
	}
	if err := b.Release(t.Context(), acquire(t, b)); err != nil {
		t.Error(err)
	}
	if got := s.PSQL("select pg_try_advisory_lock(n >> 31, n) from (select hashtext('nightly') as n) as hash"); got != "t" {
		t.Errorf("two keys of 32 bits: %q", got)
	}
	if err := a.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestInspect: the holder of a lock of ours, as another Backend sees it.
func TestInspect(t *testing.T) {
	s := pgtest.New(t)
	a, b := at(t, s.Address()), at(t, s.Address())
	h := acquire(t, a)
	first, err := b.Inspect(t.Context(), key)
	if err != nil || first == nil || first.Key != key || first.Host != "here" || first.PID != 4711 || !strings.HasPrefix(first.Holder, "repolock, session ") {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := a.Inspect(t.Context(), key); err != nil || *again != *first {
		t.Errorf("%+v, %v", again, err)
	}
	if err := a.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	h = acquire(t, b)
	if second, err := b.Inspect(t.Context(), key); err != nil || second.Revision == first.Revision {
		t.Errorf("another session has the same revision: %+v, %v", second, err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
	if _, err := b.Inspect(t.Context(), ""); !errors.Is(err, locking.ErrKey) {
		t.Error(err)
	}
}

// TestBreakNeedsRights: a user can end sessions of its own; others need a role, which the error names.
func TestBreakNeedsRights(t *testing.T) {
	s := pgtest.New(t)
	s.PSQL("create role bob login; create role carol login; create role dave login; grant pg_signal_backend to dave")
	as := func(user string) *postgres.Backend {
		return with(t, s, func(to *postgres.Target) { to.User = user })
	}
	bob, carol, dave := as("bob"), as("carol"), as("dave")
	broken := func(b *postgres.Backend, seen *locking.Info, want bool) {
		t.Helper()
		got, err := b.Break(t.Context(), seen, false)
		if got != want || want != (err == nil) || !want && (!errors.Is(err, locking.ErrPermission) || !strings.Contains(err.Error(), "pg_signal_backend")) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	h := acquire(t, bob)
	full, err := bob.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := carol.Inspect(t.Context(), key)
	if err != nil || hidden == nil || hidden.Host != "here" || !hidden.Acquired.IsZero() {
		t.Fatalf("what another user sees: %+v, %v", hidden, err)
	}
	broken(carol, hidden, false)
	broken(dave, hidden, false)
	s.PSQL("grant pg_read_all_stats to carol, dave")
	broken(carol, full, false)
	if err := bob.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
	broken(dave, full, true)
	isLost(t, bob.Renew(t.Context(), h), "")
	acquire(t, bob)
	full, err = bob.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	broken(bob, full, true)
	h = acquire(t, at(t, s.Address()))
	full, err = dave.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	broken(dave, full, false) // a superuser's
	_ = h
}

// TestBreakComparesBoth: neither the number of a session nor its beginning is enough.
func TestBreakComparesBoth(t *testing.T) {
	s := pgtest.New(t)
	a := at(t, s.Address())
	h := acquire(t, a)
	seen, err := a.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	pid, began, _ := strings.Cut(seen.Revision, "@")
	idle := psqlHolds(t, s, "select true") // a session that holds nothing
	defer idle()
	other := strings.ReplaceAll(s.PSQL("select pid || '@' || "+`to_char(backend_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') `+
		"from pg_stat_activity where application_name = 'psql' and pid <> pg_backend_pid()"), "\n", "")
	for _, revision := range []string{other, "1@" + began, pid + "@2000-01-01T00:00:00.000000Z"} {
		if broken, err := a.Break(t.Context(), &locking.Info{Key: key, Revision: revision}, false); broken || err != nil {
			t.Errorf("%s: %v, %v", revision, broken, err)
		}
	}
	for _, revision := range []string{"", "x@y", pid} {
		if broken, err := a.Break(t.Context(), &locking.Info{Key: key, Revision: revision}, false); broken || err == nil {
			t.Errorf("%s: %v, %v", revision, broken, err)
		}
	}
	if err := a.Renew(t.Context(), h); err != nil {
		t.Error(err)
	}
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
		h, ok, err := b.TryLock(t.Context(), fmt.Sprint(i), ttl)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		handles = append(handles, h)
	}
	s.Stop()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	s.Cont()
	eventually(t, "no session is left", func() bool {
		return s.PSQL("select count(*) from pg_stat_activity where application_name like 'repolock%'") == "0"
	})
	for _, h := range handles {
		isLost(t, b.Renew(t.Context(), h), "")
		isLost(t, b.Release(t.Context(), h), "")
	}
	if _, ok, err := b.TryLock(t.Context(), key, ttl); ok || err == nil {
		t.Errorf("%v, %v", ok, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestTTLIsPositive: a lock that is over before it begins isn't acquired.
func TestTTLIsPositive(t *testing.T) {
	b := at(t, refusing(t))
	if _, ok, err := b.TryLock(t.Context(), key, 0); ok || err == nil || errors.Is(err, locking.ErrUnreachable) {
		t.Errorf("%v, %v", ok, err)
	}
}
