//go:build programs

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/server"
	"github.com/repolock/repolock/locking"
)

// classes are the classes of TryLock's errors.
var classes = map[string]error{
	"unreachable": locking.ErrUnreachable, "permission": locking.ErrPermission, "unfit": locking.ErrUnfit, "key": locking.ErrKey,
}

// refused checks the class of TryLock's error, "plain" if it has none, that it is one line that
// says what to do, and that Inspect returns the same class.
func refused(t *testing.T, b *Backend, class, says string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	_, ok, err := b.TryLock(ctx, key, ttl)
	assert.Need(t, !ok && err != nil, "%v, %v", ok, err)
	is := func(err error) string {
		for name, class := range classes {
			if errors.Is(err, class) {
				return name
			}
		}
		return "plain"
	}
	if is(err) != class || !strings.Contains(err.Error(), says) || strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("%s: %v, want %s, %q", is(err), err, class, says)
	}
	t.Log(err)
	if _, err := b.Inspect(ctx, key); is(err) != class {
		t.Errorf("inspect: %v", err)
	}
}

// TestRefused: each answer of a server has its class.
func TestRefused(t *testing.T) {
	s := pgtest.New(t, "ssl=off")
	s.PSQL("create role bob login password 'topsecret'; create role carol login; create role dave login connection limit 0")
	s.PSQL("create database closed")
	s.PSQL("revoke connect on database closed from public")
	s.PSQL("create database latin template template0 encoding 'LATIN1' locale 'C'")
	s.Hosts("local all postgres trust", "host all bob all scram-sha-256", "host all carol,dave,postgres all trust")
	t.Setenv(PasswordVariable, "topsecretwrong")
	refused(t, with(t, s, func(to *Target) { to.User = "bob" }), "permission", "REPOLOCK_POSTGRES_PASSWORD")
	refused(t, with(t, s, func(to *Target) { to.User = "nobody" }), "permission", "pg_hba.conf")
	refused(t, with(t, s, func(to *Target) { to.User, to.Database = "carol", "closed" }), "permission", "grant")
	refused(t, with(t, s, func(to *Target) { to.Database = "absent" }), "unfit", "name a database")
	refused(t, with(t, s, func(to *Target) { to.User = "dave" }), "plain", "each lock is a session")
	refused(t, with(t, s, func(to *Target) { to.SSLMode = "require" }), "unfit", "sslmode")
	refused(t, with(t, s, func(to *Target) { to.Host, to.Port = "/no/such/directory", 5432 }), "unreachable", "/no/such/directory")
	latin := with(t, s, func(to *Target) { to.Database = "latin" })
	assert.Is(t, lockcheck.Fails(t.Context(), t, latin, "日"), locking.ErrKey, "a key that isn't in the encoding")
	t.Setenv(PasswordVariable, "topsecret")
	b := with(t, s, func(to *Target) { to.User = "bob" })
	lockcheck.Release(t, b, lockcheck.Acquire(t, b, key, ttl))
	s.PSQL("revoke execute on function pg_try_advisory_lock(bigint) from public")
	_, ok, err := b.TryLock(t.Context(), key, ttl)
	assert.That(t, !ok && errors.Is(err, locking.ErrPermission), "without the right to lock: %v, %v", ok, err)
	if os.Getuid() != 0 { // no directory is closed to root
		assert.OK(t, os.Chmod(s.Socket(), 0))
		refused(t, backend(t, socket(t, s)), "permission", "permission denied")
		assert.OK(t, os.Chmod(s.Socket(), 0o777))
	}
}

// TestTooManySessions: a server without a session for us isn't unreachable.
func TestTooManySessions(t *testing.T) {
	s := pgtest.New(t, "max_connections=5", "superuser_reserved_connections=1", "max_wal_senders=0")
	s.PSQL("create role bob login")
	b := with(t, s, func(to *Target) { to.User = "bob" })
	var held []locking.Handle
	for i := range 4 {
		h := lockcheck.Acquire(t, b, fmt.Sprint(i), ttl)
		held = append(held, h)
	}
	refused(t, b, "plain", "max_connections")
	for _, h := range held {
		lockcheck.Release(t, b, h)
	}
}

// TestStandby: a standby is refused, because its locks are its own. One that isn't up yet has answered, and so
// isn't unreachable.
func TestStandby(t *testing.T) {
	s := pgtest.New(t)
	refused(t, at(t, s.Standby().Address()), "unfit", "connect to the primary")
	refused(t, at(t, s.Standby(pgtest.Never).Address()), "plain", "wait until")
}

// TestUnreachable: only silence is unreachable.
func TestUnreachable(t *testing.T) {
	for _, sslmode := range []string{"disable", "prefer"} {
		to := target(t, fmt.Sprint("127.0.0.1:", server.Port(t)))
		to.SSLMode = sslmode
		refused(t, backend(t, to), "unreachable", "refused")
		to.Host = "no-such-host.invalid"
		refused(t, backend(t, to), "unreachable", "no-such-host.invalid")
		assert.Is(t, assert.Err(backend(t, to).Examine(t.Context())), locking.ErrUnreachable, "examine")
		to = target(t, answering(t, nil))
		to.SSLMode = sslmode
		refused(t, backend(t, to), "unreachable", "EOF")
	}
}

// TestForeign: what answers and isn't PostgreSQL is unfit.
func TestForeign(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "-ERR unknown command\r\n", "S", "R\x00\x00\x00\x08\x00\x00\x00\x63"} {
		for _, sslmode := range []string{"disable", "prefer", "require"} {
			to := target(t, answering(t, []byte(answer)))
			to.SSLMode = sslmode
			b := backend(t, to)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, ok, err := b.TryLock(ctx, key, ttl)
			cancel()
			if ok || err == nil || errors.Is(err, locking.ErrUnreachable) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, %s: %v, %v", answer, sslmode, ok, err)
			}
			t.Log(err)
		}
	}
}

// answering is a server that answers what comes, and closes.
func answering(t *testing.T, answer []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_, _ = c.Write(answer)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
