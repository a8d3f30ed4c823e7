package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// holderSQL returns the sessions that hold the lock of a key, an exclusive one first. A prepared
// transaction has no session. The server hides some fields of other users' sessions.
const holderSQL = "select l.pid, a.application_name, a.usename, coalesce(host(a.client_addr), ''), " +
	since + ", l.mode from (select * from pg_locks where granted and " + isLock + ") as l " +
	"left join pg_stat_activity as a on a.pid = l.pid " +
	"order by l.mode, l.pid"

// since is when a session began, as a text that can be compared.
const since = `to_char(a.backend_start at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`

// Inspect returns the session that holds a key's lock, or nil. Holder names the program, session
// and user, and Host and PID are those of another Backend, else Host is the client's address and
// PID is 0. Acquired is when the session began: the server doesn't know when it acquired the
// lock. It is zero if the server hides it. The server ends a lock with its holder, so that Stale
// is never set.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := b.asking(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock %q can't be looked at: %w", key, err)
	}
	defer c.bye(ctx)
	row, err := c.holder(ctx, key)
	if err != nil {
		return nil, b.failed(ctx, fmt.Sprintf("lock %q can't be looked at", key), err, true)
	}
	if row == nil {
		return nil, nil
	}
	return info(key, row), nil
}

// asking makes a connection that doesn't lock. It refuses a standby.
func (b *Backend) asking(ctx context.Context) (*conn, error) {
	c, err := b.connect(ctx, clip(b.options.Holder, 16)+": a look at locks", 0)
	if err != nil {
		return nil, err
	}
	row, err := c.query(ctx, "select pg_is_in_recovery()")
	switch {
	case err != nil:
		err = b.failed(ctx, cantAsk, err, true)
	case row[0] == "t":
		err = b.unfit("it is a standby, which doesn't know the locks of the primary: connect to the primary")
	default:
		return c, nil
	}
	c.cut()
	return nil, err
}

// bye ends a session that holds no lock.
func (c *conn) bye(ctx context.Context) {
	_ = c.pg.Close(ctx)
	c.cut()
}

// holder returns the first row of holderSQL, or nil.
func (c *conn) holder(ctx context.Context, key string) ([]string, error) {
	hash, err := c.query(ctx, "select hashtext($1)::bigint", key)
	if err != nil {
		return nil, err
	}
	return c.query(ctx, holderSQL, hash[0])
}

// ours is the application_name of a Backend.
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
