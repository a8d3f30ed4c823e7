//go:build unix

package sftp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestBanner: text in place of SFTP is shown, and is no lack of an answer.
func TestBanner(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.WriteString(theirs, "Welcome to backup1\n"); theirs.Close() }()
	_, err := start(t.Context(), ours, target{root: "/"}, func(context.Context) error { return nil })
	assert.Says(t, err, store.ErrConfig, "Welcome to backup1")
	assert.That(t, !errors.Is(err, store.ErrUnreachable), "%v", err)
}

// TestLostConnection: a connection's end fails the request under way, which isn't sent again. The next request
// opens another connection.
func TestLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &relay{}
		s := r.on(t, repository(t, 0o700))
		put(t, s, "k")
		end := *r.ended.Load()
		r.answers(func(req request) []byte {
			if req.kind != typeRemove {
				return nil
			}
			_ = end()
			return []byte{}
		})
		removes := r.seen(typeRemove)
		assert.Is(t, s.Delete(t.Context(), "k"), store.ErrUnreachable)
		synctest.Wait()
		assert.Equal(t, r.seen(typeRemove)-removes, 1)
		assert.Equal(t, r.dials.Load(), 1)
		assert.That(t, s.Answered(), "the store has answered before")
		r.answers(nil)
		assert.OK(t, s.Delete(t.Context(), "k"))
		assert.Equal(t, r.dials.Load(), 2)
	})
}

// TestSilence: if a request's time is over, and the server has been silent for a second, the connection isn't used
// again. After a cancellation, or if other answers came, it is.
func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		canceled, talks bool
		timeout         time.Duration
		tries, dials    int
	}{
		"silent":              {timeout: 3 * time.Second, tries: 1, dials: 2},
		"canceled":            {canceled: true, timeout: 3 * time.Second, tries: 1, dials: 1},
		"busy":                {talks: true, timeout: 3 * time.Second, tries: 1, dials: 1},
		"asked too late":      {timeout: time.Second / 4, tries: 1, dials: 1},
		"silent to each of 4": {timeout: time.Second / 4, tries: 4, dials: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &relay{}
			s := r.on(t, repository(t, 0o700))
			put(t, s, "k")
			r.answers(func(req request) []byte {
				if !c.talks || req.kind == typeRemove {
					return []byte{}
				}
				return nil
			})
			for range c.tries {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				if c.canceled {
					time.AfterFunc(2*time.Second, cancel)
				}
				err := s.Delete(ctx, "k")
				assert.Is(t, err, ctx.Err(), name)
				assert.That(t, !errors.Is(err, store.ErrUnreachable), "%s: %v", name, err)
				cancel()
			}
			synctest.Wait()
			r.answers(nil)
			_, _, err := s.Get(t.Context(), "k", 100)
			assert.OK(t, err)
			assert.Equal(t, int(r.dials.Load()), c.dials, name)
		})
	}
}

// slow is a store whose connections need two seconds, and then fail with err.
func slow(t *testing.T, dials *int, err error) *Store {
	root := repository(t, 0o700)
	s := opened(func(ctx context.Context) (*conn, error) {
		*dials++
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		return inGo(ctx, root)
	})
	t.Cleanup(func() { assert.OK(t, s.Close()) })
	return s
}

// TestDial: requests share a connection that is being opened, and it outlives the request that asked for it. A request
// whose time is over before there is a connection didn't reach the server; a cancelled one shows nothing. After a
// failure the next request opens another one.
func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		s := slow(t, &dials, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error)
		for range 3 {
			go func() { done <- s.Delete(ctx, "k") }()
		}
		for range 3 {
			err := <-done
			assert.Is(t, err, context.DeadlineExceeded)
			assert.Is(t, err, store.ErrUnreachable)
		}
		canceled, cancelNow := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancelNow)
		err := s.Delete(canceled, "k")
		assert.That(t, errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnreachable), "%v", err)
		assert.That(t, !s.Answered(), "no server has answered")
		assert.OK(t, s.Delete(t.Context(), "k"))
		assert.That(t, s.Answered(), "a server has answered")
		assert.Equal(t, dials, 1)

		failures := 0
		down := slow(t, &failures, store.ErrUnreachable)
		for range 2 {
			assert.Is(t, down.Delete(t.Context(), "k"), store.ErrUnreachable)
		}
		assert.Equal(t, failures, 2)
		assert.That(t, !down.Answered(), "no server has answered")
	})
}

// TestClose: Close ends an attempt to connect, and starts none.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, began := 0, time.Now()
		s := slow(t, &dials, nil)
		synctest.Wait()
		assert.OK(t, s.Close())
		assert.OK(t, s.Close())
		assert.Equal(t, time.Since(began), 0)
		assert.Equal(t, dials, 1)
	})
}

// TestBegunAndLost: a server that begins SFTP was reached, whatever comes then.
func TestBegunAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &relay{}
		r.answers(func(req request) []byte {
			if req.kind == typeStat {
				_ = (*r.ended.Load())()
				return []byte{}
			}
			return nil
		})
		s := r.on(t, repository(t, 0o700))
		err := s.Delete(t.Context(), "k")
		assert.That(t, err != nil && !errors.Is(err, store.ErrUnreachable), "%v", err)
		assert.That(t, s.Answered(), "a server has answered")
		synctest.Wait() // the server still makes and removes the file of its clock
	})
}
