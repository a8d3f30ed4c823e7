package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// checkServer refuses a standby, and a pooler unless it keeps sessions.
func (b *Backend) checkServer(ctx context.Context, c *conn) error {
	row, err := c.query(ctx, "select pg_backend_pid(), pg_is_in_recovery()")
	if err != nil {
		return b.failed(ctx, cantAsk, err, true)
	}
	if row[1] == "t" {
		return b.unfit("it is a standby, whose locks the primary and other standbys don't know: connect to the primary")
	}
	pid := number(row[0])
	c.session = pid
	if pid == c.pg.PID() {
		return nil
	}
	if !b.options.SessionPooler {
		return b.unfit("a pooler is in between: it announced session %d, and statements run in session %d. "+
			"Connect to PostgreSQL itself, or to a pool in session mode and declare that by pooler=session", c.pg.PID(), pid)
	}
	mode, err := b.poolMode(ctx, c)
	if err != nil {
		return err
	}
	if mode != "" {
		return b.unfit("a pooler is in between that %s: connect to PostgreSQL itself, or to a pool in session mode", mode)
	}
	return nil
}

// Answers of poolMode.
const (
	lendsTransactions   = "lends a session for a transaction"
	refusesTransactions = "lends a session for a statement"
)

// poolMode makes a second connection by the pooler, and looks whether it gets the session of the
// first, or makes the first get another. It returns what shows that sessions aren't kept, or "",
// which is no proof: a pool that has no session for us within a second shows nothing.
func (b *Backend) poolMode(ctx context.Context, first *conn) (string, error) {
	trying, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	second, err := b.connect(trying, clip(b.options.Holder, 16)+": is a pooler in between?", 0)
	if err != nil {
		return "", b.ended(ctx)
	}
	defer second.cut()
	for range 3 {
		mode, err := b.poolRound(ctx, trying, first, second)
		if mode != "" || err != nil {
			return mode, err
		}
		if second.pg.IsClosed() {
			return "", nil
		}
	}
	return "", nil
}

// poolRound holds a session by a transaction of the second connection, and asks the first one
// before and afterwards which session it has. If the second connection fails, that shows nothing.
func (b *Backend) poolRound(ctx, trying context.Context, first, second *conn) (string, error) {
	before, err := first.pid(ctx)
	if err != nil {
		return "", b.failed(ctx, cantAsk, err, true)
	}
	if _, err := second.pg.Exec(trying, "begin").ReadAll(); err != nil {
		if said, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(said.Message, "statement pooling") {
			return refusesTransactions, nil
		}
		return "", b.ended(ctx)
	}
	other, err := second.pid(trying)
	if err != nil {
		return "", b.ended(ctx)
	}
	if other == before {
		return lendsTransactions, nil
	}
	after, err := first.pid(ctx)
	if err != nil {
		return "", b.failed(ctx, cantAsk, err, true)
	}
	if after != before {
		return lendsTransactions, nil
	}
	if _, err := second.pg.Exec(trying, "rollback").ReadAll(); err != nil {
		return "", b.ended(ctx)
	}
	return "", nil
}

const cantAsk = "the session can't be asked"

// ended returns an error if ctx has ended.
func (b *Backend) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return b.failed(ctx, cantAsk, err, true)
	}
	return nil
}

// pid asks for the number of the session.
func (c *conn) pid(ctx context.Context) (uint32, error) {
	row, err := c.query(ctx, "select pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	return number(row[0]), nil
}
