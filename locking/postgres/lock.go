package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// isLock selects the rows of pg_locks for the lock of key $1 in this database. pg_locks shows a bigint in two halves.
const isLock = "locktype = 'advisory' and objsubid = 1 and classid::bigint = hashtext($1)::bigint >> 32 & 4294967295 and " +
	"objid::bigint = hashtext($1)::bigint & 4294967295 and " +
	"database = (select oid from pg_database where datname = current_database())"

// TryLock acquires the lock of a key, in a new session. The key is UTF-8 without NUL, of 1 to 512 bytes. If ctx ends
// when the server might already have granted the lock, TryLock ends the session. It waits for that until the deadline
// of ctx, or for a second if ctx has none. If the server doesn't answer by then, it frees the lock when it notices the
// end of the connection: after about the ttl if the network is cut.
//
// TryLock returns ErrUnfit for a standby, for a pooler that doesn't keep sessions, and for a server that doesn't keep
// advisory locks.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (none locking.Handle, ok bool, err error) {
	if err := checkKey(key); err != nil {
		return none, false, err
	}
	if ttl <= 0 {
		return none, false, fmt.Errorf("postgres: lock %q: the ttl must be positive, not %v", key, ttl)
	}
	if err := ctx.Err(); err != nil {
		return none, false, fmt.Errorf("postgres: lock %q: %w", key, err)
	}
	ctx, exit, err := b.enter(ctx)
	if err != nil {
		return none, false, err
	}
	defer exit()
	working, cancel, rest := b.reserve(ctx)
	defer cancel()
	c, err := b.open(working, b.name(key), ttl)
	if err != nil {
		return none, false, fmt.Errorf("lock %q wasn't acquired: %w", key, err)
	}
	granted, err := b.grant(working, c, key, ttl)
	if !granted {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest)
		defer cancel()
		c.leave(ending)
		if err != nil {
			err = fmt.Errorf("lock %q wasn't acquired: %w", key, err)
		}
		return none, false, err
	}
	h := locking.NewHandle(key, ttl)
	if !b.keep(h, c) {
		c.cut()
		return none, false, errClosed
	}
	return h, true, nil
}

// reserve returns a context that ends before the deadline of ctx, if ctx has one. TryLock uses the remaining time to
// end the session if it wasn't granted the lock.
func (b *Backend) reserve(ctx context.Context) (working context.Context, cancel context.CancelFunc, rest time.Duration) {
	deadline, ok := ctx.Deadline()
	if !ok {
		working, cancel = context.WithCancel(ctx)
		return working, cancel, grace
	}
	rest = min(grace, max(deadline.Sub(clock.System{}.Now())/8, time.Millisecond))
	working, cancel = context.WithDeadline(ctx, deadline.Add(-rest))
	return working, cancel, rest
}

// grant prepares the session, tries to acquire the lock, and verifies it. It reports false if another session has the
// lock.
func (b *Backend) grant(ctx context.Context, c *conn, key string, ttl time.Duration) (bool, error) {
	if c.session != c.pg.PID() {
		if !b.sessionPooler {
			return false, b.unfit("a pooler is in between: it announced session %d, but statements run in session %d: "+
				"connect to PostgreSQL itself, or to a pool in session mode and declare that by pooler=session", c.pg.PID(), c.session)
		}
		mode, err := b.poolMode(ctx, c)
		if err != nil {
			return false, b.failed(ctx, cantAsk, err)
		}
		if mode != "" {
			return false, b.unfit("a pooler is in between that %s: connect to PostgreSQL itself, or to a pool in session mode", mode)
		}
	}
	if err := c.set(ctx, sessionSettings(ttl)); err != nil {
		return false, b.failed(ctx, "the session's timeouts can't be set", err)
	}
	row, err := c.query(ctx, "select pg_try_advisory_lock(hashtext($1)::bigint), pg_backend_pid()", key)
	if err != nil {
		return false, b.failed(ctx, "it isn't known whether the lock was granted; the connection was closed, which frees it", err)
	}
	if row[0] != "t" {
		return false, nil
	}
	pid, held, err := c.holds(ctx, key)
	if err != nil {
		return false, b.failed(ctx, "the lock can't be verified", err)
	}
	if !held || pid != c.session {
		return false, b.unfit("it granted the lock to session %s, but session %d doesn't have it%s: "+
			"a pooler in between doesn't keep sessions, or the server keeps no advisory locks: "+
			"connect to PostgreSQL itself", row[1], pid, c.takeDown(ctx, key, row[1]))
	}
	return true, nil
}

// takeDown releases the lock in the pooler's session pid. It repeats the statement until the pooler runs it in that
// session. If the pooler doesn't, takeDown returns the consequence, for a message.
func (c *conn) takeDown(ctx context.Context, key, pid string) string {
	for range 20 {
		row, err := c.query(ctx,
			"select case when pg_backend_pid() = $2::int then pg_advisory_unlock(hashtext($1)::bigint) end", key, pid)
		if err != nil {
			break
		}
		if row[0] != "" {
			return ""
		}
	}
	return " (the lock stays held until session " + pid + " ends: end it by pg_terminate_backend)"
}

// holds asks the session for its pid, and whether it holds the lock of a key.
func (c *conn) holds(ctx context.Context, key string) (pid uint32, held bool, err error) {
	row, err := c.query(ctx, "select pg_backend_pid(), exists (select from pg_locks where pid = pg_backend_pid() and granted and "+
		"mode = 'ExclusiveLock' and "+isLock+")", key)
	if err != nil {
		return 0, false, err
	}
	return number(row[0]), row[1] == "t", nil
}

// The modes that poolMode returns.
const (
	lendsTransactions = "lends a session for a transaction"
	lendsStatements   = "lends a session for a statement"
)

// poolMode returns the mode of a pooler, if that mode can't keep a lock, or "". It makes a second connection. It checks
// whether that connection gets the session of the first one, or makes the first one get another session. The result ""
// proves nothing: the second connection can fail, or get no session within grace.
func (b *Backend) poolMode(ctx context.Context, first *conn) (string, error) {
	trying, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	second, err := b.connect(trying, program+"is a pooler in between?", 0)
	if err != nil {
		return "", ctx.Err()
	}
	defer second.cut()
	for range 3 {
		before, err := first.pid(ctx)
		if err != nil {
			return "", err
		}
		begun, err := second.pg.Exec(trying, "begin; select pg_backend_pid()").ReadAll()
		if said, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(said.Message, "statement pooling") {
			return lendsStatements, nil
		}
		if err != nil {
			return "", ctx.Err()
		}
		if number(string(begun[1].Rows[0][0])) == before {
			return lendsTransactions, nil
		}
		after, err := first.pid(ctx)
		if err != nil {
			return "", err
		}
		if after != before {
			return lendsTransactions, nil
		}
		if _, err := second.pg.Exec(trying, "rollback").ReadAll(); err != nil {
			return "", ctx.Err()
		}
	}
	return "", nil
}
