//go:build programs

package postgres

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
)

// proxy passes bytes between clients and a server, until it drops them.
type proxy struct {
	net.Listener
	server string

	mu    sync.Mutex
	mute  bool   // what either side sends is dropped, and no connection is closed
	word  string // after a client has sent this, the server's bytes are dropped
	conns []net.Conn
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	p := &proxy{Listener: l, server: server}
	t.Cleanup(func() {
		_ = l.Close()
		p.reset()
	})
	go p.serve()
	return p
}

func (p *proxy) address() string { return p.Addr().String() }

// cut makes the proxy silent, as a network that is cut.
func (p *proxy) cut(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

// dropAfter drops the answers to a statement with a word in it, and what follows. "" drops none.
func (p *proxy) dropAfter(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = word
}

// reset closes all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		dropping := new(bool)
		go p.pass(server, client, func(b []byte) {
			if p.word != "" && bytes.Contains(b, []byte(p.word)) {
				*dropping = true
			}
		}, func() bool { return p.mute })
		go p.pass(client, server, func([]byte) {}, func() bool { return p.mute || *dropping })
	}
}

// pass copies bytes. See and drop run under the mutex. What a side closes is closed for the other,
// unless the proxy is silent.
func (p *proxy) pass(to, from net.Conn, see func([]byte), drop func() bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		see(b[:n])
		dropped := drop()
		mute := p.mute
		p.mu.Unlock()
		if n > 0 && !dropped {
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			if !mute {
				_ = to.Close()
			}
			return
		}
	}
}

// TestEndOfSession: whatever ends the session, Watch notices it, Renew and Release say that the
// lock is lost, and it stays lost when another holder has it.
func TestEndOfSession(t *testing.T) {
	s := pgtest.New(t)
	p := newProxy(t, s.Address())
	for _, c := range []struct {
		name, why string
		renews    bool // before the release
		end       func()
	}{
		{"killed", "", false, func() { s.Kill(); s.Start() }},
		{"restarted", "57P01", true, s.Restart},
		{"terminated", "57P01", true, func() {
			s.PSQL("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
		}},
		{"connection reset", "", true, p.reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := at(t, p.address()), at(t, s.Address())
			h := lockcheck.Acquire(t, a, key, ttl)
			w := a.Watch(h)
			select {
			case <-w:
				t.Fatal("closed before the loss")
			default:
			}
			c.end()
			closes(t, "Watch", w)
			if c.renews {
				isLost(t, a.Renew(t.Context(), h), c.why)
			}
			next := becomesFree(t, b)
			if c.renews {
				isLost(t, a.Renew(t.Context(), h), "")
			}
			isLost(t, a.Release(t.Context(), h), "")
			closes(t, "Watch of a lost lock", a.Watch(h))
			lockcheck.Held(t, a, key)
			lockcheck.Release(t, b, next)
		})
	}
}

// TestPaused: no method waits for a stopped server longer than its context, and the lock lasts.
func TestPaused(t *testing.T) {
	s := pgtest.New(t)
	a, b := at(t, s.Address()), at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, ttl)
	seen := lockcheck.Seen(t, b, key)
	s.Stop()
	bounded := func(what string, call func(context.Context) error) {
		t.Helper()
		const bound = 300 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		begun := time.Now()
		err := call(ctx)
		if err == nil || errors.Is(err, locking.ErrLost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%s took %v", what, took)
		} else {
			t.Logf("%s took %v of %v: %v", what, took, bound, err)
		}
	}
	bounded("renew", func(ctx context.Context) error { return a.Renew(ctx, h) })
	bounded("renew again", func(ctx context.Context) error { return a.Renew(ctx, h) })
	bounded("lock", func(ctx context.Context) error {
		_, ok, err := b.TryLock(ctx, key, ttl)
		assert.That(t, !ok && errors.Is(err, locking.ErrUnreachable), "%v, %v", ok, err)
		return err
	})
	bounded("inspect", func(ctx context.Context) error { _, err := b.Inspect(ctx, key); return err })
	bounded("break", func(ctx context.Context) error { _, err := b.Break(ctx, seen, false); return err })
	bounded("examine", func(ctx context.Context) error { _, err := b.Examine(ctx); return err })
	s.Cont()
	assert.Is(t, a.Renew(t.Context(), h), nil, "renew of a server that goes on")
	lockcheck.Held(t, b, key)
	s.Stop()
	bounded("release", func(ctx context.Context) error { return a.Release(ctx, h) })
	s.Cont()
	lockcheck.Release(t, b, becomesFree(t, b))
	isLost(t, a.Release(t.Context(), h), "")
}

// TestCutOff: a holder that is cut off can't renew, and doesn't know whether it has the lock. It
// has it, when the network is back before the server has noticed.
func TestCutOff(t *testing.T) {
	s := pgtest.New(t)
	p := newProxy(t, s.Address())
	a, b := at(t, p.address()), at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, ttl)
	p.cut(true)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := a.Renew(ctx, h); err == nil || errors.Is(err, locking.ErrLost) {
			t.Errorf("renew: %v", err)
		}
		cancel()
	}
	lockcheck.Held(t, b, key)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	if err := a.Release(ctx, h); err == nil || errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), "when it notices") {
		t.Errorf("release: %v", err)
	}
	cancel()
	lockcheck.Held(t, b, key)
	p.reset() // the server notices
	lockcheck.Release(t, b, becomesFree(t, b))
}

// TestLostReply: if the answer to a statement is lost, the session is ended: its lock doesn't stay held.
func TestLostReply(t *testing.T) {
	s := pgtest.New(t)
	for _, statement := range []string{"pg_is_in_recovery", "set_config", "pg_try_advisory_lock", "exists (select from pg_locks"} {
		t.Run(statement, func(t *testing.T) {
			p := newProxy(t, s.Address())
			a, b := at(t, p.address()), at(t, s.Address())
			p.dropAfter(statement)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, ok, err := a.TryLock(ctx, key, ttl)
			if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || errors.Is(err, locking.ErrUnfit) {
				t.Errorf("%v, %v", ok, err)
			}
			t.Log(err)
			p.dropAfter("")
			lockcheck.Release(t, b, becomesFree(t, b)) // the lock can be our own: it must not stay
			lockcheck.Release(t, a, becomesFree(t, a))
		})
	}
}
