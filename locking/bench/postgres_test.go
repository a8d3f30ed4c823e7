//go:build programs

package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// BenchmarkPostgres acquires and releases one lock on one server. Ours makes a connection for each
// lock. The plain lock on a connection that is open already asks nothing about the server, and a
// loss of the connection isn't noticed.
func BenchmarkPostgres(b *testing.B) {
	s := pgtest.New(b)
	url := "postgres://postgres@" + s.Address() + "/postgres?sslmode=disable"
	b.Run("repolock", func(b *testing.B) { advisoryOurs(b, url) })
	b.Run("connect-lock-close", func(b *testing.B) { advisoryConnected(b, url) })
	b.Run("plain", func(b *testing.B) { advisoryPlain(b, url) })
}

var errHeld = errors.New("not acquired")

func advisoryOurs(b *testing.B, url string) {
	target, err := postgres.Parse(url + "&key=ours")
	if err != nil {
		b.Fatal(err)
	}
	backend, err := postgres.Open(target, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	sample(b, func() error {
		h, ok, err := backend.TryLock(b.Context(), "ours", time.Minute)
		if err != nil || !ok {
			return errors.Join(err, errHeld)
		}
		return backend.Release(b.Context(), h)
	})
}

func advisoryConnected(b *testing.B, url string) {
	sample(b, func() error {
		c, err := pgconn.Connect(b.Context(), url)
		if err != nil {
			return err
		}
		return errors.Join(advisoryLock(b.Context(), c, "connected"), c.Close(b.Context()))
	})
}

func advisoryPlain(b *testing.B, url string) {
	c, err := pgconn.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close(b.Context()) }()
	sample(b, func() error { return advisoryLock(b.Context(), c, "plain") })
}

// advisoryLock acquires and releases.
func advisoryLock(ctx context.Context, c *pgconn.PgConn, key string) error {
	for _, sql := range []string{
		"select pg_try_advisory_lock(hashtext($1)::bigint)", "select pg_advisory_unlock(hashtext($1)::bigint)",
	} {
		r := c.ExecParams(ctx, sql, [][]byte{[]byte(key)}, nil, nil, nil).Read()
		if r.Err != nil {
			return r.Err
		}
		if string(r.Rows[0][0]) != "t" {
			return errHeld
		}
	}
	return nil
}
