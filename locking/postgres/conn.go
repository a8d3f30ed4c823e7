package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// grace is how long the end of a session is waited for, so that its lock is certainly free.
const grace = time.Second

// conn is a connection and its session. One goroutine at a time uses it.
type conn struct {
	pg  *pgconn.PgConn
	net server.Conn // of TCP or the socket, below TLS; any goroutine can close it
	// session is the number of the session in which statements run. pg.PID is what was
	// announced when the connection began.
	session uint32
}

// errNoCancel is for pgconn, which would make another connection to cancel a query.
var errNoCancel = errors.New("queries aren't cancelled")

// connect makes a connection that other programs see by its name. A silence of ttl ends it
// on our side; 0 leaves that to the system.
func (b *Backend) connect(ctx context.Context, name string, silence time.Duration) (*conn, error) {
	config := b.config.Copy()
	config.RuntimeParams["application_name"] = name
	config.RuntimeParams["client_encoding"] = "UTF8"
	c := new(conn)
	var heard atomic.Int64
	var connected atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		plain, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tune(plain, silence)
		c.net = server.Conn{Conn: plain, Heard: &heard}
		return c.net, nil
	}
	var err error
	c.pg, err = pgconn.ConnectConfig(ctx, config)
	connected.Store(true)
	if err == nil {
		return c, nil
	}
	if heard.Load() == 0 && server.Silent(err) {
		err = fault.As(locking.ErrUnreachable, err)
	}
	return nil, b.failed(ctx, "no connection", err)
}

const cantAsk = "the session can't be asked"

// open makes a connection, and refuses a standby.
func (b *Backend) open(ctx context.Context, name string, silence time.Duration) (*conn, error) {
	c, err := b.connect(ctx, name, silence)
	if err != nil {
		return nil, err
	}
	row, err := c.query(ctx, "select pg_backend_pid(), pg_is_in_recovery()")
	switch {
	case err != nil:
		err = b.failed(ctx, cantAsk, err)
	case row[1] == "t":
		err = b.unfit("it is a standby, whose locks the primary and other standbys don't know: connect to the primary")
	default:
		c.session = number(row[0])
		return c, nil
	}
	c.cut()
	return nil, err
}

// query runs a statement that returns one row, or none, which is nil. A value that is NULL becomes "".
func (c *conn) query(ctx context.Context, sql string, args ...string) (row []string, err error) {
	values := make([][]byte, len(args))
	for i, arg := range args {
		values[i] = []byte(arg)
	}
	result := c.pg.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	if result.Err != nil || len(result.Rows) == 0 {
		return nil, result.Err
	}
	for _, value := range result.Rows[0] {
		row = append(row, string(value))
	}
	return row, nil
}

// pid asks for the number of the session.
func (c *conn) pid(ctx context.Context) (uint32, error) {
	row, err := c.query(ctx, "select pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	return number(row[0]), nil
}

// number is the pid of a session, or 0.
func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

// leave ends the session, and waits until the server has ended it, for no longer than ctx or grace.
func (c *conn) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if c.pg.IsClosed() { // after an error pgconn sends Terminate and waits, in a goroutine
		select {
		case <-c.pg.CleanupDone():
		case <-ctx.Done():
		}
	} else {
		stop := context.AfterFunc(ctx, func() { _ = c.net.Close() })
		c.pg.Frontend().Send(&pgproto3.Terminate{})
		if c.pg.Frontend().Flush() == nil {
			// The server frees the session's locks, and then closes the connection.
			_, _ = io.Copy(io.Discard, c.pg.Conn())
		}
		stop()
	}
	c.cut()
}

// cut closes the connection. The server ends the session when it notices.
func (c *conn) cut() {
	_ = c.net.Close()
	_ = c.pg.Close(context.Background()) // which can't write any more
	<-c.pg.CleanupDone()
}

// nameLength is how much of an application_name the server keeps.
const nameLength = 63

// purpose is what other programs see of a session without a lock.
func (b *Backend) purpose(what string) string { return clip(b.options.Holder, 16) + ": " + what }

// name is what other programs see in pg_stat_activity: "repolock: KEY on HOST pid N". The key is
// cut so that the rest fits. The server shows characters that aren't ASCII as question marks.
func (b *Backend) name(key string) string {
	head, tail := b.purpose(""), " on "+clip(b.options.Host, 24)+" pid "+strconv.Itoa(b.options.PID)
	return head + clip(key, max(nameLength-len(head)-len(tail), 4)) + tail
}

// clip cuts s to n bytes, and replaces what isn't printable ASCII.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(s) > n {
		return s[:n-3] + "..."
	}
	return s
}
