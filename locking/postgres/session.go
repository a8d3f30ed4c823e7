package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// session is a session of the server that holds one lock. Its goroutine owns the connection. It answers requests, and
// reads from the connection between them, so that it notices at once when the connection ends.
type session struct {
	backend  *Backend
	conn     *conn
	key      string
	requests chan request
	lost     chan struct{} // closed when the lock is lost
	err      error         // why the lock is lost, once lost is closed
	done     chan struct{} // closed when the goroutine has ended
}

// request asks a session's goroutine for a Renew or a Release. answer has room for one value.
type request struct {
	release bool
	answer  chan error
}

// keep starts the goroutine of a lock's session. It reports false after Close.
func (b *Backend) keep(h locking.Handle, c *conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	s := &session{backend: b, conn: c, key: h.Key(), requests: make(chan request), lost: make(chan struct{}), done: make(chan struct{})}
	b.sessions[h.Token()] = s
	b.users.Go(func() {
		defer close(s.done)
		defer context.AfterFunc(b.ctx, func() { _ = c.net.Close() })()
		for s.serve() {
		}
	})
	return true
}

// serve reads from the connection until a request comes, and answers the request. It reports whether the session
// continues.
func (s *session) serve() bool {
	idle, wake := context.WithCancel(context.Background())
	defer wake()
	read := make(chan error, 1)
	go func() { read <- s.conn.pg.WaitForNotification(idle) }()
	var r request
	var err error
	select {
	case err = <-read:
	case r = <-s.requests:
		wake()
		if err = <-read; !s.conn.pg.IsClosed() {
			err = nil // wake has ended the read; the connection is still open
		}
	}
	switch {
	case err != nil:
		err = s.lose(err)
	case r.answer == nil:
		return true // the server sent a notification
	case r.release:
		if err = s.unlock(); err == nil {
			r.answer <- nil
			s.conn.leave(s.backend.ctx)
			return false
		}
	default:
		err = s.verify()
	}
	if r.answer != nil {
		r.answer <- err
	}
	return s.err == nil
}

// verify asks the session whether it still holds the lock.
func (s *session) verify() error {
	pid, held, err := s.conn.holds(context.Background(), s.key)
	switch {
	case err != nil && !s.conn.pg.IsClosed():
		return s.backend.failed(context.Background(), cantAsk, err)
	case err == nil && (!held || pid != s.conn.session):
		err = fmt.Errorf("session %d doesn't have it", pid)
	}
	if err != nil {
		return s.lose(err)
	}
	return nil
}

func (s *session) unlock() error {
	row, err := s.conn.query(context.Background(), "select pg_backend_pid(), pg_advisory_unlock(hashtext($1)::bigint)", s.key)
	if err == nil && (row[1] != "t" || number(row[0]) != s.conn.session) {
		err = fmt.Errorf("session %s didn't have it", row[0])
	}
	if err != nil {
		return s.lose(err)
	}
	return nil
}

// lose records the loss of the lock, and closes the connection.
func (s *session) lose(err error) error {
	s.err = s.gone(cause(err))
	close(s.lost)
	s.conn.cut()
	return s.err
}

func (s *session) gone(why string) error {
	return fault.New(locking.ErrLost, "postgres: server %s: lock %q is lost: %s", s.backend.where, s.key, why)
}

var errNoAnswer = errors.New("no answer in time")

// ask sends a request to the session's goroutine and returns the answer. It returns errNoAnswer if ctx ends first.
func (s *session) ask(ctx context.Context, release bool) error {
	r := request{release, make(chan error, 1)}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return errNoAnswer
	case <-s.done:
		if s.err != nil {
			return s.err
		}
		return s.gone("it was released")
	}
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}

// find returns the session of a handle, or ErrLost.
func (b *Backend) find(h locking.Handle) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.sessions[h.Token()]; ok && s.key == h.Key() {
		return s, nil
	}
	return nil, fault.New(locking.ErrLost, "postgres: server %s: lock %q: %v", b.where, h.Key(), locking.ErrLost)
}

func (b *Backend) forget(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, h.Token())
}

// Renew asks the session whether it still holds the lock. It returns ErrLost if the session doesn't, or has ended. If
// ctx ends before the answer, the lock is unchanged.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	s, err := b.find(h)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("postgres: lock %q wasn't renewed: %w", h.Key(), err)
	}
	err = s.ask(ctx, false)
	if errors.Is(err, errNoAnswer) {
		return fmt.Errorf("postgres: server %s: lock %q wasn't renewed: no answer: %w", b.where, h.Key(), context.Cause(ctx))
	}
	if errors.Is(err, locking.ErrLost) {
		b.forget(h)
	}
	return err
}

// Release releases the lock and ends its session. It returns ErrLost if the session had already ended. If ctx ends
// before the answer, Release closes the connection. The server then frees the lock when it notices that: at once, or
// after about the ttl if the network is cut.
func (b *Backend) Release(ctx context.Context, h locking.Handle) error {
	s, err := b.find(h)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("postgres: lock %q wasn't released: %w", h.Key(), err)
	}
	err = s.ask(ctx, true)
	if errors.Is(err, errNoAnswer) {
		_ = s.conn.net.Close()
		err = fmt.Errorf("postgres: server %s: it isn't known whether lock %q was released: no answer: %w; "+
			"the connection was closed, and the server frees the lock when it notices", b.where, h.Key(), context.Cause(ctx))
	}
	b.forget(h)
	return err
}

// Cleanup does nothing, because the server frees a lock when its session ends.
func (b *Backend) Cleanup(ctx context.Context) error { return ctx.Err() }

// Watch returns a channel that is closed when the connection ends without a Release. If the network is cut, no end of
// the connection arrives, so the channel stays open.
func (b *Backend) Watch(h locking.Handle) <-chan struct{} {
	s, err := b.find(h)
	if err != nil {
		lost := make(chan struct{})
		close(lost)
		return lost
	}
	return s.lost
}

// Connection returns the session's connection, without its TLS layer. The session lasts until Release, or until no
// process has the connection open.
func (b *Backend) Connection(h locking.Handle) syscall.Conn {
	s, err := b.find(h)
	if err != nil {
		return nil
	}
	below, _ := s.conn.net.Conn.(syscall.Conn)
	return below
}

// grace is how long leave waits for the end of a session. After that end the lock is certainly free.
const grace = time.Second

// conn is a connection and its session. Only one goroutine at a time uses it.
type conn struct {
	pg  *pgconn.PgConn
	net server.Conn // TCP or the Unix socket, without the TLS layer; any goroutine can close it
	// session is the pid of the session that runs the statements. If there is a pooler, it differs from pg.PID, which
	// the server announced at first.
	session uint32
}

// errNoCancel keeps pgconn from opening a second connection to cancel a query.
var errNoCancel = errors.New("queries aren't cancelled")

// connect makes a connection with an application_name. If silence isn't 0, our system closes the connection when the
// server has been silent for 11/12 of silence: see tune.
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

// open makes a connection. It returns ErrUnfit for a standby.
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

// query runs a statement and returns its first row, or nil if there are no rows. NULL becomes "".
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

// number parses an unsigned number. It returns 0 for any other text.
func number(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

// leave ends the session. It waits until the server has ended it, ctx ends, or grace is over.
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

// program is the beginning of every connection's application_name.
const program = "repolock: "

// nameLength is the number of bytes of an application_name that the server keeps.
const nameLength = 63

// name returns the application_name of a session that holds a lock: "repolock: KEY on HOST pid N". It cuts the key so
// that the whole name fits.
func (b *Backend) name(key string) string {
	tail := " on " + clip(b.host, 24) + " pid " + strconv.Itoa(os.Getpid())
	return program + clip(key, nameLength-len(program)-len(tail)) + tail
}

// clip cuts s to n bytes. It replaces each character that isn't printable ASCII, as the server would.
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

// maxIdle and maxSilence are the largest timeouts that all systems accept.
const (
	maxIdle    = 2 * time.Hour
	maxSilence = 24 * 24 * time.Hour
)

// tune makes our system close a connection after the server has been silent for 11/12 of the ttl. That is the holder's
// deadline.
func tune(c net.Conn, ttl time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok || ttl <= 0 {
		return
	}
	silence := min(max(ttl*11/12, time.Second), maxSilence)
	_ = tcp.SetKeepAliveConfig(probing(silence))
	setUserTimeout(tcp, silence)
}

// probing returns the settings with which a system closes a connection after a silence. It begins to probe the peer
// after half of the silence, and sends as many probes as fit into the other half.
func probing(silence time.Duration) net.KeepAliveConfig {
	idle := min(max(silence/2, time.Second), maxIdle).Truncate(time.Second)
	interval := min(max(silence/12, time.Second), maxIdle).Truncate(time.Second)
	count := min(max(int((silence-idle+interval-1)/interval), 1), 127)
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: count}
}

// sessionSettings returns the settings of a session that holds a lock. The server ends the session only if the peer has
// been silent for the ttl, and does so at most a twelfth of the ttl, or a second, later. The holder's deadline comes
// first, because both times begin with the last packet that the server received.
func sessionSettings(ttl time.Duration) map[string]string {
	silence := min(max(ttl, time.Second), maxSilence)
	probe := probing(silence)
	return map[string]string{
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"idle_in_transaction_session_timeout": "0",
		"idle_session_timeout":                "0", // since PostgreSQL 14
		"transaction_timeout":                 "0", // since PostgreSQL 17
		"tcp_keepalives_idle":                 strconv.Itoa(int(probe.Idle / time.Second)),
		"tcp_keepalives_interval":             strconv.Itoa(int(probe.Interval / time.Second)),
		"tcp_keepalives_count":                strconv.Itoa(probe.Count),
		"tcp_user_timeout":                    strconv.FormatInt(silence.Milliseconds(), 10), // since PostgreSQL 12
	}
}

// set changes the settings of the session. It skips the settings that the server's version doesn't have.
func (c *conn) set(ctx context.Context, settings map[string]string) error {
	var names, values []string
	for name, value := range settings {
		names, values = append(names, name), append(values, value)
	}
	_, err := c.query(ctx, "select set_config(name, value, false) from pg_settings join "+
		"unnest($1::text[], $2::text[]) as wanted (name, value) using (name)",
		"{"+strings.Join(names, ",")+"}", "{"+strings.Join(values, ",")+"}")
	return err
}
