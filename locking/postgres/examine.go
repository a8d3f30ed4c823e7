package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// examinedTTL is the ttl whose timeouts Examine tries.
const examinedTTL = time.Minute

// pooler is what examinePooler looks for.
const pooler = "pooler"

// fewSessions is the number of free sessions below which Examine warns.
const fewSessions = 10

// Examine looks at the server in a session of its own: the version, whether it is a standby or has
// standbys, a pooler, timeouts, the number of sessions, and the clock, which locks don't depend on.
// It doesn't look at timeouts behind a pooler that TryLock refuses: they are of a session that
// other clients use.
func (b *Backend) Examine(ctx context.Context) ([]locking.Finding, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := b.connect(ctx, clip(b.options.Holder, 16)+": doctor", examinedTTL)
	if err != nil {
		return nil, err
	}
	defer c.bye(ctx)
	var all []locking.Finding
	looks := []func(context.Context, *conn) (locking.Finding, error){
		b.examineVersion, b.examineRole, b.examineSessions, b.examineStandbys, b.examineClock, b.examinePooler,
	}
	for len(looks) > 0 {
		look := looks[0]
		looks = looks[1:]
		finding, err := look(ctx, c)
		if err != nil {
			return all, b.failed(ctx, "it can't be examined", err, true)
		}
		all = append(all, finding)
		if finding.What == pooler && finding.Verdict != locking.Bad {
			looks = append(looks, b.examineTimeouts, b.examineSilence)
		}
	}
	return all, nil
}

func (b *Backend) examineVersion(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "version"}
	row, err := c.query(ctx, "select version()")
	if err == nil {
		f.Found, _, _ = strings.Cut(text.Line(row[0]), ",")
	}
	return f, err
}

func (b *Backend) examineRole(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "role", Found: "primary"}
	row, err := c.query(ctx, "select pg_is_in_recovery()")
	if err == nil && row[0] == "t" {
		f.Found, f.Verdict = "standby, whose locks the primary doesn't know", locking.Bad
		f.Advice = "name the primary in the URL"
	}
	return f, err
}

func (b *Backend) examinePooler(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: pooler, Found: "none: the session has the number that was announced"}
	pid, err := c.pid(ctx)
	c.session = pid
	if err != nil || pid == c.pg.PID() {
		return f, err
	}
	mode, err := b.poolMode(ctx, c)
	switch {
	case err != nil:
		return f, err
	case mode != "":
		f.Found, f.Verdict = "one that "+mode, locking.Bad
		f.Advice = "connect to PostgreSQL itself, or to a pool in session mode"
	case b.options.SessionPooler:
		f.Verdict = locking.Doubtful
		f.Found = "one that is declared to keep sessions; two connections didn't show the contrary"
		f.Advice = "connect to PostgreSQL itself: the pooler's timeouts decide when a vanished holder's lock is free"
	default:
		f.Found, f.Verdict = "one whose mode isn't known", locking.Bad
		f.Advice = "connect to PostgreSQL itself; if the pool is in session mode, add pooler=session to the URL"
	}
	return f, nil
}

// examineTimeouts says what the server's timeouts are for other sessions.
func (b *Backend) examineTimeouts(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "timeouts", Found: "none"}
	const which = "name in ('statement_timeout', 'lock_timeout', 'idle_session_timeout', " +
		"'idle_in_transaction_session_timeout', 'transaction_timeout')"
	rows, err := c.rows(ctx, "select name, setting from pg_settings where setting <> '0' and "+which+" order by name")
	if err != nil {
		return f, err
	}
	var set []string
	for _, row := range rows {
		set = append(set, row[0]+" "+row[1]+"ms")
	}
	sql, args := settingSQL(sessionSettings(examinedTTL, release(c.pg.ParameterStatus("server_version"))))
	if _, err := c.query(ctx, sql, args...); err != nil {
		return f, err
	}
	left, err := c.rows(ctx, "select name from pg_settings where setting <> '0' and "+which)
	switch {
	case err != nil:
		return f, err
	case len(left) > 0:
		f.Found, f.Verdict = strings.Join(set, ", ")+", which a session can't turn off", locking.Doubtful
		f.Advice = "set them to 0 for this user: ALTER ROLE … SET …"
	case len(set) > 0:
		f.Found = strings.Join(set, ", ") + "; the session of a lock turns them off"
	}
	return f, nil
}

// examineSilence looks whether the server accepts the timeouts of TCP. examineTimeouts has set them.
func (b *Backend) examineSilence(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "silent peers"}
	row, err := c.query(ctx, "select current_setting('tcp_keepalives_idle'), "+
		"coalesce(current_setting('tcp_user_timeout', true), '0')")
	switch {
	case err != nil:
	case c.net.RemoteAddr().Network() == "unix":
		f.Found = "none: a socket of this machine ends with its processes"
	case row[0] == "0":
		f.Found, f.Verdict = "the server sets no timeouts of TCP", locking.Doubtful
		f.Advice = "set those of its system: the lock of a holder whose machine vanishes stays held until then"
	case strings.TrimRight(row[1], "mins ") == "0":
		f.Found = "the server probes them from half of the ttl on (tcp_keepalives_idle)"
	default:
		f.Found = "the server ends a session whose peer is silent for the ttl (tcp_user_timeout)"
	}
	return f, err
}

func (b *Backend) examineSessions(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "sessions"}
	row, err := c.query(ctx, `select current_setting('max_connections')::int
		- current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0),
		(select coalesce(sum(numbackends), 0) from pg_stat_database),
		(select rolconnlimit from pg_roles where rolname = current_user),
		(select datconnlimit from pg_database where datname = current_database())`)
	if err != nil {
		return f, err
	}
	most, used := int(number(row[0])), int(number(row[1]))
	f.Found = fmt.Sprintf("%d of %d are in use; each lock takes one", used, most)
	free := most - used
	for i, name := range []string{"user", "database"} {
		if limit, err := strconv.Atoi(row[2+i]); err == nil && limit >= 0 {
			f.Found += fmt.Sprintf("; the %s has at most %d", name, limit)
			free = min(free, limit)
		}
	}
	if free < fewSessions {
		f.Verdict = locking.Doubtful
		f.Advice = "raise max_connections or the limit: a lock can't be acquired without a session"
	}
	return f, nil
}

func (b *Backend) examineStandbys(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "failover", Found: "no standby is connected"}
	row, err := c.query(ctx, "select count(*) from pg_stat_replication")
	if err == nil && row[0] != "0" {
		f.Found, f.Verdict = "standbys that are connected, and don't know the locks: "+row[0], locking.Doubtful
		f.Advice = "make sure that a failover ends the old primary first: a holder that still reaches it keeps its lock there"
	}
	return f, err
}

func (b *Backend) examineClock(ctx context.Context, c *conn) (locking.Finding, error) {
	f := locking.Finding{What: "clock"}
	row, err := c.query(ctx, "select extract(epoch from clock_timestamp())")
	if err != nil {
		return f, err
	}
	seconds, err := strconv.ParseFloat(row[0], 64)
	if err != nil {
		return f, err
	}
	ahead := b.options.Clock.Now().Sub(time.UnixMicro(int64(seconds * 1e6)))
	f.Found = fmt.Sprintf("this machine's is %v ahead of the server's; no lock depends on it",
		ahead.Round(time.Millisecond))
	return f, nil
}
