package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
)

// session holds one lock. A goroutine of its own owns the connection: it serves requests, and
// reads in between, so that it notices at once when the connection ends.
type session struct {
	backend *Backend
	conn    *conn
	key     string

	mu      sync.Mutex
	waiting []request
	wake    context.CancelFunc // ends the read; never nil

	lost chan struct{} // closed with err set, unless the lock was released
	err  error         // an ErrLost, once done is closed
	done chan struct{} // closed when the goroutine has ended
}

// request is a Renew or a Release. Its answer has room for one error.
type request struct {
	release bool
	answer  chan error
}

// keep begins to hold a lock. It reports false after Close.
func (b *Backend) keep(h locking.Handle, c *conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	s := &session{backend: b, conn: c, key: h.Key(), wake: func() {}, lost: make(chan struct{}), done: make(chan struct{})}
	b.sessions[h.Token()] = s
	b.users.Go(func() {
		defer context.AfterFunc(b.ctx, func() { _ = c.net.Close() })()
		s.run()
	})
	return true
}

// run serves requests until the session ends. It sends a statement for a request after that was made.
func (s *session) run() {
	defer close(s.done)
	for ended := false; !ended; {
		r, idle := s.next()
		switch {
		case r == nil:
			err := s.conn.pg.WaitForNotification(idle)
			if err != nil && (idle.Err() == nil || s.conn.pg.IsClosed()) {
				s.lose(err)
			}
		case r.release:
			err := s.unlock()
			r.answer <- err
			if err == nil {
				s.conn.leave(s.backend.ctx)
			}
			ended = true
		default:
			r.answer <- s.verify()
		}
		ended = ended || s.err != nil
	}
}

// next returns the first request, or a context for the read that the next request ends.
func (s *session) next() (*request, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
	if len(s.waiting) > 0 {
		r := s.waiting[0]
		s.waiting = s.waiting[1:]
		return &r, nil
	}
	idle, wake := context.WithCancel(context.Background())
	s.wake = wake
	return nil, idle
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

// unlock frees the lock.
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

// lose notes why the lock is lost, and ends the session.
func (s *session) lose(err error) error {
	s.err = s.gone(cause(err))
	close(s.lost)
	s.conn.cut()
	return s.err
}

func (s *session) gone(why string) error {
	return fault.New(locking.ErrLost, "postgres: server %s: lock %q is lost: %s", s.backend.where, s.key, why)
}

// errNoAnswer is returned by ask when its context has ended.
var errNoAnswer = errors.New("no answer in time")

// ask makes a request, and waits for the answer.
func (s *session) ask(ctx context.Context, release bool) error {
	r := request{release, make(chan error, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, r)
	s.wake()
	s.mu.Unlock()
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		return errNoAnswer
	case <-s.done:
	}
	select {
	case err := <-r.answer:
		return err
	default:
	}
	if s.err != nil {
		return s.err
	}
	return s.gone("it was released")
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

// Renew asks the session whether it still holds the lock. It returns ErrLost if the session has
// ended, or doesn't hold the lock. If ctx ends before the answer, the lock is as it was.
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

// Release frees the lock and ends its session. It returns ErrLost if the session has ended
// before. If ctx ends before the answer, Release closes the connection, which frees the lock when
// the server notices it: at once, or if the network is cut after about the ttl.
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

// Cleanup does nothing: a session leaves nothing behind.
func (b *Backend) Cleanup(ctx context.Context) error { return ctx.Err() }

// Watch returns a channel that is closed when the session ends without Release. It notices the end
// of the connection, and not the silence of a network that is cut.
func (b *Backend) Watch(h locking.Handle) <-chan struct{} {
	s, err := b.find(h)
	if err != nil {
		lost := make(chan struct{})
		close(lost)
		return lost
	}
	return s.lost
}

// Connection returns the session's connection, below TLS. The session lasts as long as any process
// has it open, unless Release ends it.
func (b *Backend) Connection(h locking.Handle) syscall.Conn {
	s, err := b.find(h)
	if err != nil {
		return nil
	}
	below, _ := s.conn.net.Conn.(syscall.Conn)
	return below
}
