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
)

// grace is how long the end of a session is waited for, so that its lock is certainly free.
const grace = time.Second

// conn is a connection and its session. One goroutine at a time uses it.
type conn struct {
	pg  *pgconn.PgConn
	net net.Conn // of TCP or the socket, below TLS; any goroutine can close it
	// session is the number of the session in which statements run. pg.PID is what was
	// announced when the connection began.
	session uint32
}

// attempt is what is known of a connection while it is made.
type attempt struct {
	answered atomic.Bool // the server has sent something
	done     atomic.Bool // no more connections can be made, not even one to cancel a query
	net      net.Conn
}

// wire notes an answer.
type wire struct {
	net.Conn
	answered *atomic.Bool
}

func (w wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.answered.Store(true)
	}
	return n, err
}

// errNoCancel is for pgconn, which would make another connection to cancel a query.
var errNoCancel = errors.New("queries aren't cancelled")

// connect makes a connection that other programs see by its name. A silence of ttl ends it
// on our side; 0 leaves that to the system.
func (b *Backend) connect(ctx context.Context, name string, silence time.Duration) (*conn, error) {
	config := b.config.Copy()
	config.RuntimeParams["application_name"] = name
	config.RuntimeParams["client_encoding"] = "UTF8"
	a := new(attempt)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if a.done.Load() {
			return nil, errNoCancel
		}
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tune(c, silence)
		a.net = wire{c, &a.answered}
		return a.net, nil
	}
	pg, err := pgconn.ConnectConfig(ctx, config)
	a.done.Store(true)
	if err != nil {
		return nil, b.failed(ctx, "no connection", err, a.answered.Load())
	}
	return &conn{pg: pg, net: a.net}, nil
}

// query runs a statement that returns one row, or none, which is nil.
func (c *conn) query(ctx context.Context, sql string, args ...string) ([]string, error) {
	rows, err := c.rows(ctx, sql, args...)
	if len(rows) == 0 || err != nil {
		return nil, err
	}
	return rows[0], nil
}

// rows runs a statement. A value that is NULL becomes "".
func (c *conn) rows(ctx context.Context, sql string, args ...string) ([][]string, error) {
	values := make([][]byte, len(args))
	for i, arg := range args {
		values[i] = []byte(arg)
	}
	result := c.pg.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	rows := make([][]string, len(result.Rows))
	for i, row := range result.Rows {
		for _, value := range row {
			rows[i] = append(rows[i], string(value))
		}
	}
	return rows, nil
}

// leave ends the session, and waits until the server has ended it, for no longer than ctx.
func (c *conn) leave(ctx context.Context) {
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

// name is what other programs see in pg_stat_activity: "repolock: KEY on HOST pid N". The key is
// cut so that the rest fits. The server shows characters that aren't ASCII as question marks.
func (b *Backend) name(key string) string {
	head := clip(b.options.Holder, 16) + ": "
	tail := " on " + clip(b.options.Host, 24) + " pid " + strconv.Itoa(b.options.PID)
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
