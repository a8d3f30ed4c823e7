package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/repolock/repolock/locking"
)

// session holds one lock. A goroutine of its own owns the connection: it serves requests, and
// reads in between, so that it notices at once when the connection ends.
type session struct {
	backend   *Backend
	conn      *conn
	key, hash string

	mu      sync.Mutex
	waiting []request
	wake    context.CancelFunc // ends the read; never nil

	lost chan struct{} // closed with err set, unless the lock was released
	err  error         // an ErrLost
	done chan struct{} // closed when the goroutine has ended
}

// request is a Renew or a Release. Its answer has room for one error.
type request struct {
	release bool
	answer  chan error
}

func newSession(b *Backend, c *conn, key, hash string) *session {
	return &session{backend: b, conn: c, key: key, hash: hash,
		wake: func() {}, lost: make(chan struct{}), done: make(chan struct{})}
}

// run serves requests until the session ends.
func (s *session) run() {
	defer close(s.done)
	for {
		requests, idle := s.next()
		if len(requests) == 0 {
			err := s.conn.pg.WaitForNotification(idle)
			if err != nil && (idle.Err() == nil || s.conn.pg.IsClosed()) {
				s.lose(err)
				return
			}
			continue
		}
		if s.serve(requests) {
			return
		}
	}
}

// next takes all requests, or returns a context for the read that the next request ends.
func (s *session) next() ([]request, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
	requests := s.waiting
	s.waiting = nil
	idle, wake := context.WithCancel(context.Background())
	s.wake = wake
	return requests, idle
}

// serve answers requests by a statement that is sent after all of them were made. It reports
// whether the session has ended.
func (s *session) serve(requests []request) bool {
	for _, r := range requests {
		if r.release {
			s.end(requests, s.unlock())
			return true
		}
	}
	pid, held, err := s.conn.holds(context.Background(), s.hash)
	switch {
	case err != nil && !s.conn.pg.IsClosed():
		err = s.backend.failed(context.Background(), "the session can't be asked", err, true)
	case err != nil:
		s.lose(err)
	case !held || pid != s.conn.session:
		s.lose(fmt.Errorf("session %d doesn't have it", pid))
	}
	if s.err != nil {
		err = s.err
	}
	for _, r := range requests {
		r.answer <- err
	}
	return s.err != nil
}

// unlock frees the lock.
func (s *session) unlock() error {
	row, err := s.conn.query(context.Background(), "select pg_backend_pid(), pg_advisory_unlock($1::bigint)", s.hash)
	switch {
	case err != nil:
		return err
	case row[1] != "t" || number(row[0]) != s.conn.session:
		return fmt.Errorf("session %s didn't have it", row[0])
	}
	return nil
}

// end answers the requests of a session that was to be released, and ends it.
func (s *session) end(requests []request, err error) {
	released := err == nil
	if !released {
		s.lose(err)
	}
	for _, r := range requests {
		switch {
		case !released:
			r.answer <- s.err
		case r.release:
			r.answer <- nil
			released = true
		default:
			r.answer <- s.gone("it was released")
		}
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(s.backend.ctx, grace)
		defer cancel()
		s.conn.leave(ctx)
	}
}

// lose notes why the lock is lost, and ends the session.
func (s *session) lose(err error) {
	s.err = s.gone(cause(err))
	close(s.lost)
	s.conn.cut()
}

func (s *session) gone(why string) error {
	return &classed{locking.ErrLost, fmt.Sprintf("postgres: server %s: lock %q is lost: %s", s.backend.where, s.key, why)}
}

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

// errNoAnswer is returned by ask when its context has ended.
var errNoAnswer = errors.New("no answer in time")
