package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
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

// grace is how long leave waits for the end of a session, after which the lock is certainly free.
const grace = time.Second

// conn is a connection and its session. One goroutine at a time uses it.
type conn struct {
	pg  *pgconn.PgConn
	net server.Conn // TCP or the Unix socket, below TLS; any goroutine can close it
	// session is the pid of the session that runs the statements. It differs from pg.PID, which the
	// server announced at first, if a pooler is in between.
	session uint32
}

// errNoCancel keeps pgconn from dialing a second time, in order to cancel a query.
var errNoCancel = errors.New("queries aren't cancelled")

// connect makes a connection with an application_name. If silence isn't 0, our system closes the
// connection when the server is silent for that long.
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

const cantAsk = "the session doesn't answer"

// open makes a connection, and returns ErrUnfit for a standby.
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
		err = b.unfit("it is a standby, and no other server knows its locks: connect to the primary")
	default:
		c.session = number(row[0])
		return c, nil
	}
	c.cut()
	return nil, err
}

// query runs a statement and returns its first row, or nil if it has no rows. NULL becomes "".
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

// pid asks for the pid of the session.
func (c *conn) pid(ctx context.Context) (uint32, error) {
	row, err := c.query(ctx, "select pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	return number(row[0]), nil
}

// number parses an unsigned number. It returns 0 for anything else.
func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

// leave ends the session, and waits for the server to end it, until ctx ends or grace is over.
func (c *conn) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if c.pg.IsClosed() { // after an error, a goroutine of pgconn sends Terminate and waits
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

// cut closes the connection. The server ends the session when it notices that.
func (c *conn) cut() {
	_ = c.net.Close()
	_ = c.pg.Close(context.Background()) // it can't block, because net is closed
	<-c.pg.CleanupDone()
}

// program begins the application_name of each connection.
const program = "repolock: "

// nameLength is the number of bytes of an application_name that the server keeps.
const nameLength = 63

// name returns the application_name of a session that holds a lock: "repolock: KEY on HOST pid N".
// It cuts the key so that the rest fits.
func (b *Backend) name(key string) string {
	tail := " on " + clip(b.host, 24) + " pid " + strconv.Itoa(os.Getpid())
	return program + clip(key, nameLength-len(program)-len(tail)) + tail
}

// clip cuts s to n bytes, and replaces each character that isn't printable ASCII, as the server would.
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
