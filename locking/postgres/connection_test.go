//go:build programs

package postgres_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/postgres"
)

// duplicate is a second descriptor of a lock's connection, as a guard has it.
func duplicate(t *testing.T, b *postgres.Backend, h locking.Handle) (shut func()) {
	t.Helper()
	raw, err := b.Connection(h).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if controlled := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	return func() { _ = unix.Close(fd) }
}

// TestConnection: the lock lasts as long as any process has its connection open, and Release frees
// it all the same. So it is over TCP, TLS and the Unix socket.
func TestConnection(t *testing.T) {
	s := pgtest.New(t)
	certify(t, s)
	for name, to := range map[string]postgres.Target{
		"tcp":    target(t, s.Address()),
		"tls":    secure(t, s, "require"),
		"socket": parse(t, socketURL(s)),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := backend(t, to), at(t, s.Address())
			h := acquire(t, a)
			shut := duplicate(t, a, h)
			if err := a.Release(t.Context(), h); err != nil {
				t.Error(err)
			}
			next, ok, err := b.TryLock(t.Context(), key, ttl)
			if !ok || err != nil {
				t.Fatalf("it isn't free after Release: %v, %v", ok, err)
			}
			shut()
			if err := b.Release(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			if c := a.Connection(h); c != nil {
				t.Error("a lock that was released has a connection")
			}

			h = acquire(t, a)
			shut = duplicate(t, a, h)
			sentinel := acquireOther(t, a)
			if err := a.Close(); err != nil { // as when the process ends
				t.Error(err)
			}
			eventually(t, "the server notices", func() bool { return otherIsFree(t, b, sentinel) })
			held(t, b)
			shut()
			next = becomesFree(t, b)
			if err := b.Release(t.Context(), next); err != nil {
				t.Error(err)
			}
		})
	}
}

// acquireOther acquires the lock of another key, whose connection has no duplicate.
func acquireOther(t *testing.T, b *postgres.Backend) (other string) {
	t.Helper()
	if _, ok, err := b.TryLock(t.Context(), "other", ttl); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return "other"
}

// otherIsFree reports whether the lock of a key is free, and leaves it so.
func otherIsFree(t *testing.T, b *postgres.Backend, key string) bool {
	t.Helper()
	h, ok, err := b.TryLock(t.Context(), key, ttl)
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		if err := b.Release(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	return ok
}
