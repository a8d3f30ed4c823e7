package postgres

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
)

// session holds one lock. Its goroutine owns the connection: it serves requests, and reads between
// them, so that it notices at once when the connection ends.
type session struct {
	backend  *Backend
	conn     *conn
	key      string
	requests chan request
	lost     chan struct{} // closed when the lock is lost
	err      error         // the loss, once lost is closed
	done     chan struct{} // closed when the goroutine has ended
}

// request is a Renew or a Release. The channel has room for its answer.
type request struct {
	release bool
	answer  chan error
}

// keep starts the session of a lock. It reports false after Close.
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

// serve reads from the connection until a request comes, and answers the request. It reports whether
// the session goes on.
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
			err = nil // wake has ended the read, and the connection goes on
		}
	}
	switch {
	case err != nil:
		err = s.lose(err)
	case r.answer == nil:
		return true // a notification
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

// verify asks the session whether it holds the lock.
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

// ask sends a request to the session's goroutine and returns the answer, or errNoAnswer if ctx ends
// first.
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

// Renew asks the session whether it still holds the lock. It returns ErrLost if the session doesn't,
// or has ended. If ctx ends before the answer, the lock stays as it is.
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

// Release frees the lock and ends its session. It returns ErrLost if the session had ended before.
// If ctx ends before the answer, Release closes the connection. The server then frees the lock when
// it notices that: at once, or after about the ttl if the network is cut.
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

// Cleanup does nothing, because the server removes a lock with its session.
func (b *Backend) Cleanup(ctx context.Context) error { return ctx.Err() }

// Watch returns a channel that is closed when the connection ends without Release. It isn't closed
// when the network is cut, because then no end of the connection arrives.
func (b *Backend) Watch(h locking.Handle) <-chan struct{} {
	s, err := b.find(h)
	if err != nil {
		lost := make(chan struct{})
		close(lost)
		return lost
	}
	return s.lost
}

// Connection returns the session's connection, below TLS. The session lasts until Release, or until
// no process has the connection open.
func (b *Backend) Connection(h locking.Handle) syscall.Conn {
	s, err := b.find(h)
	if err != nil {
		return nil
	}
	below, _ := s.conn.net.Conn.(syscall.Conn)
	return below
}
