package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/repolock/repolock/locking"
)

// lockSQL hashes the key and tries to lock what it yields. It doesn't wait.
const lockSQL = "select k, pg_try_advisory_lock(k), pg_backend_pid() from (select hashtext($1)::bigint as k) as hash"

// holdsSQL returns the session's number, and whether it holds the lock of a hash.
const holdsSQL = "select pg_backend_pid(), exists (select from pg_locks where pid = pg_backend_pid() and granted and " +
	"mode = 'ExclusiveLock' and " + isLock + ")"

// isLock is true of the rows of pg_locks for the lock of hash $1 in this database. The hash is
// shown in two halves.
const isLock = "locktype = 'advisory' and objsubid = 1 and classid::bigint = $1::bigint >> 32 & 4294967295 and " +
	"objid::bigint = $1::bigint & 4294967295 and " +
	"database = (select oid from pg_database where datname = current_database())"

// TryLock acquires the lock of a key, in a session of its own. The key is UTF-8 without NUL, of
// 1 to 512 bytes. If ctx ends while the lock might have been granted, TryLock waits up to a
// second for the end of the session, unless ctx has a deadline, which bounds that too. A server
// that isn't heard by then frees the lock when it notices the end of the connection, after about
// the ttl if the network is cut.
//
// It returns ErrUnfit for a standby, behind a pooler that doesn't keep sessions, and for a server
// that doesn't keep advisory locks.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	none := locking.Handle{}
	if err := checkKey(key); err != nil {
		return none, false, err
	}
	if ttl <= 0 {
		return none, false, fmt.Errorf("postgres: lock %q: the ttl must be positive, not %v", key, ttl)
	}
	if err := ctx.Err(); err != nil {
		return none, false, fmt.Errorf("postgres: lock %q: %w", key, err)
	}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return none, false, err
	}
	defer leave()
	rest := b.reserve(ctx)
	working, cancel := shorten(ctx, rest)
	defer cancel()
	c, err := b.connect(working, b.name(key), ttl)
	if err != nil {
		return none, false, fmt.Errorf("lock %q wasn't acquired: %w", key, err)
	}
	hash, err := b.grant(working, c, key, ttl)
	if hash == "" || err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
		defer cancel()
		c.leave(ending)
		if err != nil {
			err = fmt.Errorf("lock %q wasn't acquired: %w", key, err)
		}
		return none, false, err
	}
	h := locking.NewHandle(key, ttl)
	if !b.keep(h, newSession(b, c, key, hash)) {
		c.cut()
		return none, false, errClosed
	}
	return h, true, nil
}

// reserve returns how much of a context's time is kept for the end of the session.
func (b *Backend) reserve(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return grace
	}
	return min(grace, max(deadline.Sub(b.options.Clock.Now())/8, time.Millisecond))
}

// shorten returns a context that ends before the deadline of ctx, if there is one.
func shorten(ctx context.Context, rest time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-rest))
	}
	return context.WithCancel(ctx)
}

// grant prepares the session and tries the lock. It returns the key's hash, or "" if another
// session has the lock.
func (b *Backend) grant(ctx context.Context, c *conn, key string, ttl time.Duration) (hash string, err error) {
	if err := b.checkServer(ctx, c); err != nil {
		return "", err
	}
	sql, args := settingSQL(sessionSettings(ttl, release(c.pg.ParameterStatus("server_version"))))
	if _, err := c.query(ctx, sql, args...); err != nil {
		return "", b.failed(ctx, "the session's timeouts can't be set", err, true)
	}
	row, err := c.query(ctx, lockSQL, key)
	if err != nil {
		return "", b.failed(ctx, "it isn't known whether the lock was granted; "+
			"the connection was closed, which frees it", err, true)
	}
	if row[1] != "t" {
		return "", nil
	}
	pid, held, err := c.holds(ctx, row[0])
	switch {
	case err != nil:
		return "", b.failed(ctx, "the lock can't be verified", err, true)
	case !held || pid != c.session:
		left := c.takeDown(ctx, row[0], row[2])
		return "", b.unfit("it granted the lock to session %s, and session %d doesn't have it%s: "+
			"a pooler is in between that doesn't keep sessions, or the server keeps no advisory locks: "+
			"connect to PostgreSQL itself", row[2], pid, left)
	}
	return row[0], nil
}

// takeDown unlocks in a session of a pooler that other clients use. It gets there by luck, and returns
// what is to be said if it doesn't.
func (c *conn) takeDown(ctx context.Context, hash, pid string) string {
	for range 20 {
		row, err := c.query(ctx,
			"select case when pg_backend_pid() = $2::int then pg_advisory_unlock($1::bigint) end", hash, pid)
		if err != nil {
			break
		}
		if row[0] != "" {
			return ""
		}
	}
	return " (the lock stays held until session " + pid + " ends: end it by pg_terminate_backend)"
}

// holds asks the session for its number, and whether it holds a lock.
func (c *conn) holds(ctx context.Context, hash string) (pid uint32, held bool, err error) {
	row, err := c.query(ctx, holdsSQL, hash)
	if err != nil {
		return 0, false, err
	}
	return number(row[0]), row[1] == "t", nil
}

// number is the pid of a session, or 0.
func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

func (b *Backend) unfit(format string, args ...any) error {
	return &classed{locking.ErrUnfit, "postgres: server " + b.where + ": " + fmt.Sprintf(format, args...)}
}
