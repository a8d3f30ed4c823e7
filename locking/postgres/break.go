package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/locking"
)

// endSQL ends a session if it is the one that was seen, and still has the lock.
const endSQL = "select pg_terminate_backend(a.pid) from pg_stat_activity as a " +
	"where a.pid = $2::int and " + since + " = $3 and " +
	"exists (select from pg_locks where pid = a.pid and granted and " + isLock + ")"

// Break ends the session that Inspect has described, by pg_terminate_backend, and with it
// whatever else that session holds or does. It waits until the lock is gone. The holder isn't
// asked: it runs on until it notices, and a program that isn't repolock perhaps never does.
//
// The user must be the session's, or have the role pg_signal_backend; only a superuser can end a
// session of a superuser. Else Break returns ErrPermission. No lock of PostgreSQL is stale.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := checkKey(seen.Key); err != nil {
		return false, err
	}
	if stale {
		return false, nil
	}
	pid, began, _ := strings.Cut(seen.Revision, "@")
	if pid == "" {
		return false, fmt.Errorf("postgres: lock %q is held by no session, and can't be broken: "+
			"look at pg_prepared_xacts", seen.Key)
	}
	if began == "" {
		return false, b.noRights(seen.Key, "the server hides when session "+pid+" began")
	}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	c, err := b.asking(ctx)
	if err != nil {
		return false, fmt.Errorf("lock %q wasn't broken: %w", seen.Key, err)
	}
	defer c.bye(ctx)
	broken, err := c.end(ctx, b.options.Clock, seen.Key, pid, began)
	if said, ok := errors.AsType[*pgconn.PgError](err); ok && said.Code == "42501" {
		return false, b.noRights(seen.Key, cause(err))
	}
	if err != nil {
		return false, b.failed(ctx, fmt.Sprintf("it isn't known whether lock %q was broken", seen.Key), err, true)
	}
	return broken, nil
}

func (b *Backend) noRights(key, why string) error {
	return &classed{locking.ErrPermission, fmt.Sprintf("postgres: server %s: lock %q wasn't broken: %s: "+
		"use the session's own user, one with the role pg_signal_backend, "+
		"or a superuser if the session is a superuser's", b.where, key, why)}
}

// poll is how often end looks whether a session that was told to end has ended.
const poll = 20 * time.Millisecond

func (c *conn) end(ctx context.Context, clock locking.Clock, key, pid, began string) (bool, error) {
	hash, err := c.query(ctx, "select hashtext($1)::bigint", key)
	if err != nil {
		return false, err
	}
	told, err := c.query(ctx, endSQL, hash[0], pid, began)
	if told == nil || err != nil || told[0] != "t" {
		return false, err
	}
	for {
		held, err := c.query(ctx, "select 1 from pg_locks where pid = $2::int and "+isLock, hash[0], pid)
		if held == nil || err != nil {
			return err == nil, err
		}
		select {
		case <-clock.After(poll):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
