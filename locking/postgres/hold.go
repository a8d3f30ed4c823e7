package postgres

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/repolock/repolock/locking"
)

// keep begins to hold a lock. It reports false after Close.
func (b *Backend) keep(h locking.Handle, s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.sessions[h.Token()] = s
	b.users.Add(1)
	go func() {
		defer b.users.Done()
		stop := context.AfterFunc(b.ctx, func() { _ = s.conn.net.Close() })
		defer stop()
		s.run()
	}()
	return true
}

// find returns the session of a handle, or ErrLost.
func (b *Backend) find(h locking.Handle) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.sessions[h.Token()]; ok && s.key == h.Key() {
		return s, nil
	}
	text := fmt.Sprintf("postgres: server %s: lock %q: %v", b.where, h.Key(), locking.ErrLost)
	return nil, &classed{locking.ErrLost, text}
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

func (b *Backend) forget(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, h.Token())
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
	below, _ := s.conn.net.(wire).Conn.(syscall.Conn)
	return below
}
