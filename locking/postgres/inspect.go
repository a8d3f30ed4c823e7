package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// holderSQL returns the sessions that hold the lock of key $1, an exclusive holder first. The pid is NULL if a prepared
// transaction holds the lock. The server hides some fields of other users' sessions.
const holderSQL = "select l.pid, a.application_name, a.usename, coalesce(host(a.client_addr), ''), " +
	since + ", l.mode from (select * from pg_locks where granted and " + isLock + ") as l " +
	"left join pg_stat_activity as a on a.pid = l.pid " +
	"order by l.mode, l.pid"

// since is the SQL expression for the time when a session began, as a string.
const since = `to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`

// endSQL ends the session with pid $2, if the session began at $3 and holds the lock of key $1.
const endSQL = "select pg_terminate_backend(a.pid) from pg_stat_activity as a " +
	"where a.pid = $2::int and " + since + " = $3 and " +
	"exists (select from pg_locks where pid = a.pid and granted and " + isLock + ")"

// Inspect returns the session that holds a key's lock, or nil. Holder names the program, session and user. Host and PID
// describe the holder's process if it uses this package. Otherwise Host is the client's address. Acquired is when the
// session began, by the server's clock, because the server doesn't record when a lock was acquired. It is zero if the
// server hides it. Stale is never set.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	ctx, c, exit, err := b.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock %q can't be inspected: %w", key, err)
	}
	defer exit()
	row, err := c.query(ctx, holderSQL, key)
	if err != nil {
		return nil, b.failed(ctx, fmt.Sprintf("lock %q can't be inspected", key), err)
	}
	if row == nil {
		return nil, nil
	}
	return info(key, row), nil
}

// look opens a session that holds no lock. The caller ends it by calling exit.
func (b *Backend) look(ctx context.Context) (_ context.Context, c *conn, exit func(), err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if c, err = b.open(ctx, program+"a look at locks", 0); err != nil {
		leave()
		return nil, nil, nil, err
	}
	return ctx, c, func() { c.leave(ctx); leave() }, nil
}

// ours matches the application_name that Backend.name returns.
var ours = lazyregexp.New(`^([^:]+): .* on (\S+) pid ([0-9]+)$`)

func info(key string, row []string) *locking.Info {
	pid, name, user, address, began := row[0], row[1], row[2], row[3], row[4]
	i := &locking.Info{Key: key, Host: address, Revision: pid + "@" + began}
	i.Acquired, _ = time.Parse(time.RFC3339Nano, began)
	if m := ours.FindStringSubmatch(name); m != nil {
		name, i.Host = m[1], m[2]
		i.PID, _ = strconv.Atoi(m[3])
	}
	if pid == "" {
		i.Holder = "a prepared transaction"
		return i
	}
	i.Holder = text.Or(name, "a program without a name") + ", session " + pid
	if user != "" {
		i.Holder += " of user " + text.Brief(user)
	}
	if !strings.HasPrefix(row[5], "Exclusive") {
		i.Holder += " (shared)"
	}
	return i
}

// Break calls pg_terminate_backend for the session that Inspect has described. That also ends the session's other locks
// and its work. Break waits until the lock is gone. The holder runs on until it notices the loss. If stale is set,
// Break does nothing, because no lock of PostgreSQL is stale.
//
// Break returns ErrPermission unless our user is the session's user or has the role pg_signal_backend. Only a superuser
// can end a superuser's session.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := checkKey(seen.Key); err != nil || stale {
		return false, err
	}
	pid, began, _ := strings.Cut(seen.Revision, "@")
	if pid == "" {
		return false, fmt.Errorf("postgres: lock %q wasn't broken: a prepared transaction holds it, and no session: "+
			"roll it back (pg_prepared_xacts)", seen.Key)
	}
	if began == "" {
		return false, b.noRights(seen.Key, "the server hides when session "+pid+" began from this user")
	}
	ctx, c, exit, err := b.look(ctx)
	if err != nil {
		return false, fmt.Errorf("lock %q wasn't broken: %w", seen.Key, err)
	}
	defer exit()
	broken, err := c.end(ctx, seen.Key, pid, began)
	if said, ok := errors.AsType[*pgconn.PgError](err); ok && said.Code == "42501" {
		return false, b.noRights(seen.Key, cause(err))
	}
	if err != nil {
		return false, b.failed(ctx, fmt.Sprintf("it isn't known whether lock %q was broken", seen.Key), err)
	}
	return broken, nil
}

func (b *Backend) noRights(key, why string) error {
	return fault.New(locking.ErrPermission, "postgres: server %s: lock %q wasn't broken: %s: "+
		"use the session's own user, one with the role pg_signal_backend, "+
		"or a superuser if the session is a superuser's", b.where, key, why)
}

// poll is the pause between two checks of end whether the session still has the lock.
const poll = 20 * time.Millisecond

// end ends a session, and waits until it no longer has the lock. It reports false if endSQL finds no such session.
func (c *conn) end(ctx context.Context, key, pid, began string) (bool, error) {
	ending, err := c.query(ctx, endSQL, key, pid, began)
	if ending == nil || err != nil || ending[0] != "t" {
		return false, err
	}
	for {
		held, err := c.query(ctx, "select 1 from pg_locks where pid = $2::int and "+isLock, key, pid)
		if held == nil || err != nil {
			return err == nil, err
		}
		if err := clock.Sleep(ctx, clock.System{}, poll); err != nil {
			return false, err
		}
	}
}

// examinedTTL is the ttl for which Examine tries the settings of a lock's session.
const examinedTTL = time.Minute

// fewSessions is the number of free sessions below which Examine warns.
const fewSessions = 10

const examineSQL = `select version(), pg_is_in_recovery(), pg_backend_pid(), (select count(*) from pg_stat_replication),
	extract(epoch from clock_timestamp()),
	current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0),
	(select coalesce(sum(numbackends), 0) from pg_stat_database),
	(select rolconnlimit from pg_roles where rolname = current_user),
	(select datconnlimit from pg_database where datname = current_database())`

// timeoutsSQL returns, in one string, the session's timeouts that are set.
const timeoutsSQL = "select coalesce(string_agg(name || ' ' || setting || 'ms', ', ' order by name), '') from pg_settings " +
	"where setting <> '0' and name in ('statement_timeout', 'lock_timeout', 'idle_session_timeout', " +
	"'idle_in_transaction_session_timeout', 'transaction_timeout')"

// Examine checks the server in a new session: version, role, standbys, pooler, timeouts, free sessions and clock. If
// there is a pooler that TryLock refuses, Examine doesn't try timeouts, because other clients use the same session.
func (b *Backend) Examine(ctx context.Context) ([]locking.Finding, error) {
	ctx, exit, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer exit()
	c, err := b.connect(ctx, program+"doctor", examinedTTL)
	if err != nil {
		return nil, err
	}
	defer c.leave(ctx)
	settings, err := b.settings(ctx, c)
	if err != nil {
		return nil, b.failed(ctx, "it can't be examined", err)
	}
	return server.Judge(settings), nil
}

func (b *Backend) settings(ctx context.Context, c *conn) ([]server.Case, error) {
	row, err := c.query(ctx, examineSQL)
	if err != nil {
		return nil, err
	}
	version, _, _ := strings.Cut(text.Line(row[0]), ",")
	epoch, err := strconv.ParseFloat(row[4], 64)
	if err != nil {
		return nil, err
	}
	ahead := clock.System{}.Now().Sub(time.UnixMicro(int64(epoch * 1e6))).Round(time.Millisecond)
	most, used := int(number(row[5])), int(number(row[6]))
	sessions, free := fmt.Sprintf("%d of %d are in use; each lock takes one", used, most), most-used
	for i, name := range []string{"user", "database"} {
		if limit, err := strconv.Atoi(row[7+i]); err == nil && limit >= 0 {
			sessions += fmt.Sprintf("; the %s has at most %d", name, limit)
			free = min(free, limit)
		}
	}
	c.session = number(row[2])
	pooled, mode := c.session != c.pg.PID(), ""
	if pooled {
		if mode, err = b.poolMode(ctx, c); err != nil {
			return nil, err
		}
	}
	all := []server.Case{
		{"version", true, locking.Good, version, ""},
		{"role", row[1] == "t", locking.Bad, "standby, whose locks the primary doesn't know", "name the primary in the URL"},
		{"role", true, locking.Good, "primary", ""},
		{"sessions", free < fewSessions, locking.Risky, sessions,
			"raise max_connections or the limit: a lock can't be acquired without a session"},
		{"sessions", true, locking.Good, sessions, ""},
		{"failover", row[3] == "0", locking.Good, "no standby is connected", ""},
		{"failover", true, locking.Risky, "connected standbys, which don't know the locks: " + row[3], "make sure that a failover " +
			"ends the old primary first: a holder that still reaches it keeps its lock there"},
		{"clock", true, locking.Good, fmt.Sprintf("this machine's is %s ahead of the server's; no lock depends on it", text.Offset(ahead)), ""},
		{"pooler", !pooled, locking.Good, "none: statements run in the announced session", ""},
		{"pooler", mode != "", locking.Bad, "it " + mode, "connect to PostgreSQL itself, or to a pool in session mode"},
		{"pooler", b.sessionPooler, locking.Risky,
			"the URL declares that it keeps sessions, and a test with two connections didn't disprove that",
			"connect to PostgreSQL itself: the pooler's timeouts decide when a vanished holder's lock is free"},
		{"pooler", true, locking.Bad, "its mode isn't known",
			"connect to PostgreSQL itself; if the pool is in session mode, add pooler=session to the URL"},
	}
	if pooled && (mode != "" || !b.sessionPooler) {
		return all, nil
	}
	timeouts, err := c.timeouts(ctx)
	return append(all, timeouts...), err
}

// timeouts sets the timeouts that a session with a lock has, and reads them back.
func (c *conn) timeouts(ctx context.Context) ([]server.Case, error) {
	before, err := c.query(ctx, timeoutsSQL)
	if err == nil {
		err = c.set(ctx, sessionSettings(examinedTTL))
	}
	if err != nil {
		return nil, err
	}
	after, err := c.query(ctx, timeoutsSQL)
	if err != nil {
		return nil, err
	}
	tcp, err := c.query(ctx, "select current_setting('tcp_keepalives_idle'), coalesce(current_setting('tcp_user_timeout', true), '0')")
	if err != nil {
		return nil, err
	}
	return []server.Case{
		{"timeouts", after[0] != "", locking.Risky, before[0] + ", and a session can't turn them off",
			"set them to 0 for this user: ALTER ROLE … SET …"},
		{"timeouts", before[0] != "", locking.Good, before[0] + "; the session of a lock turns them off", ""},
		{"timeouts", true, locking.Good, "none", ""},
		{"silent peers", c.net.RemoteAddr().Network() == "unix", locking.Good, "none: a Unix socket ends with its processes", ""},
		{"silent peers", tcp[0] == "0", locking.Risky, "the server can't set TCP timeouts for a session",
			"set the TCP timeouts of its system: until they are over, the server keeps the lock of a machine that vanished"},
		{"silent peers", strings.TrimRight(tcp[1], "mins ") == "0", locking.Good,
			"the server begins to probe them after half of the ttl (tcp_keepalives_idle)", ""},
		{"silent peers", true, locking.Good, "the server ends a session whose peer is silent for the ttl (tcp_user_timeout)", ""},
	}, nil
}
