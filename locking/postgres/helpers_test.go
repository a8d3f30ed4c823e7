//go:build programs

package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	key = "nightly"
	ttl = 10 * time.Minute // no test waits so long
)

// target is the database postgres of a server at an address.
func target(t *testing.T, address string) Target {
	t.Helper()
	target, err := Parse("postgres://postgres@" + address + "/postgres?sslmode=disable&key=" + key)
	assert.OK(t, err)
	return target
}

// backend is a client of its own.
func backend(t *testing.T, to Target) *Backend {
	t.Helper()
	b, err := Open(to)
	assert.OK(t, err)
	t.Cleanup(func() {
		assert.Is(t, b.Close(), nil)
	})
	return b
}

// at is a client of the server at an address.
func at(t *testing.T, address string) *Backend {
	t.Helper()
	return backend(t, target(t, address))
}

// eventually waits for what must come, however slow the machine is.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		assert.Need(t, !time.Now().After(end), "%s: not after 5 minutes", what)
	}
}

// closes waits until a channel is closed.
func closes(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(5 * time.Minute):
		t.Fatalf("%s: not after 5 minutes", what)
	}
}

// becomesFree waits until the server has noticed, and acquires the lock.
func becomesFree(t *testing.T, b *Backend) locking.Handle {
	t.Helper()
	var h locking.Handle
	eventually(t, "the lock is free", func() bool {
		var ok bool
		var err error
		h, ok, err = b.TryLock(t.Context(), key, ttl)
		assert.OK(t, err)
		return ok
	})
	return h
}

func nothingLeft(t *testing.T, s *pgtest.Server) {
	t.Helper()
	assert.Equal(t, s.PSQL("select count(*) from pg_locks where locktype = 'advisory'"), "0", "locks that are left")
}

// isLost checks that an error is ErrLost, and names the cause.
func isLost(t *testing.T, err error, why string) {
	t.Helper()
	if !errors.Is(err, locking.ErrLost) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want ErrLost because of %q", err, why)
	}
}

// with changes a target of a server.
func with(t *testing.T, s *pgtest.Server, change func(*Target)) *Backend {
	t.Helper()
	to := target(t, s.Address())
	change(&to)
	return backend(t, to)
}

// socket is the target of a server's Unix socket.
func socket(t *testing.T, s *pgtest.Server) Target {
	t.Helper()
	to := target(t, s.Address())
	to.Host, to.Port = s.Socket(), uint16(s.Port())
	return to
}
