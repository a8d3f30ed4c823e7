package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// examinedTTL is the ttl with which Examine tries the settings of a lock's session.
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

// timeoutsSQL returns the timeouts of the session that are set, in one string.
const timeoutsSQL = "select coalesce(string_agg(name || ' ' || setting || 'ms', ', ' order by name), '') from pg_settings " +
	"where setting <> '0' and name in ('statement_timeout', 'lock_timeout', 'idle_session_timeout', " +
	"'idle_in_transaction_session_timeout', 'transaction_timeout')"

// Examine checks the server in a new session: version, role, standbys, pooler, timeouts, free sessions
// and clock. Behind a pooler that TryLock refuses, it doesn't try timeouts, because other clients use
// the same session.
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
		{"sessions", free < fewSessions, locking.Doubtful, sessions,
			"raise max_connections or the limit: a lock can't be acquired without a session"},
		{"sessions", true, locking.Good, sessions, ""},
		{"failover", row[3] == "0", locking.Good, "no standby is connected", ""},
		{"failover", true, locking.Doubtful, "connected standbys, which don't know the locks: " + row[3], "make sure that a failover " +
			"ends the old primary first: a holder that still reaches it keeps its lock there"},
		{"clock", true, locking.Good, fmt.Sprintf("this machine's is %v ahead of the server's; no lock depends on it", ahead), ""},
		{"pooler", !pooled, locking.Good, "none: statements run in the announced session", ""},
		{"pooler", mode != "", locking.Bad, "it " + mode, "connect to PostgreSQL itself, or to a pool in session mode"},
		{"pooler", b.sessionPooler, locking.Doubtful,
			"declared to keep sessions; two connections have shown nothing else",
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

// timeouts gives the session the settings of a session with a lock, and reads them back.
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
		{"timeouts", after[0] != "", locking.Doubtful, before[0] + ", and a session can't turn them off",
			"set them to 0 for this user: ALTER ROLE … SET …"},
		{"timeouts", before[0] != "", locking.Good, before[0] + "; the session of a lock turns them off", ""},
		{"timeouts", true, locking.Good, "none", ""},
		{"silent peers", c.net.RemoteAddr().Network() == "unix", locking.Good, "none: a Unix socket ends with its processes", ""},
		{"silent peers", tcp[0] == "0", locking.Doubtful, "the server can't set TCP timeouts for a session",
			"set those of its system: until they pass, it keeps the lock of a holder whose machine vanishes"},
		{"silent peers", strings.TrimRight(tcp[1], "mins ") == "0", locking.Good,
			"the server begins to probe them after half of the ttl (tcp_keepalives_idle)", ""},
		{"silent peers", true, locking.Good, "the server ends a session whose peer is silent for the ttl (tcp_user_timeout)", ""},
	}, nil
}
