//go:build programs

package bench

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5/pgconn"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/locking/redis"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/dir"
)

// sample runs f b.N times, and reports the median of its durations and its allocations.
func sample(b *testing.B, f func() error) {
	b.Helper()
	b.ReportAllocs()
	for range 200 { // connections, scripts, caches
		assert.OK(b, f())
	}
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		assert.OK(b, f())
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
}

// repolock samples a backend.
func repolock(b *testing.B, backend locking.Backend) {
	b.Helper()
	sample(b, func() error {
		h, ok, err := backend.TryLock(b.Context(), "ours", ttl)
		if err != nil || !ok {
			return errors.Join(err, errHeld)
		}
		return backend.Release(b.Context(), h)
	})
}

const ttl = time.Minute

var errHeld = errors.New("not acquired")

// BenchmarkRedis acquires and releases one lock on one server. The plain lock is SET and DEL without a token: a
// holder whose lock has expired deletes another's.
func BenchmarkRedis(b *testing.B) {
	s := redistest.New(b)
	c := goredislib.NewClient(&goredislib.Options{Addr: s.Addr()})
	defer c.Close()
	b.Run("repolock", func(b *testing.B) {
		target, err := redis.Parse("redis://" + s.Addr() + "/0?key=ours")
		assert.OK(b, err)
		backend, err := redis.Open(target, redis.Options{})
		assert.OK(b, err)
		defer backend.Close()
		repolock(b, backend)
	})
	b.Run("redsync", func(b *testing.B) {
		sync := redsync.New(goredis.NewPool(c))
		sample(b, func() error {
			m := sync.NewMutex("theirs", redsync.WithExpiry(ttl), redsync.WithTries(1))
			if err := m.LockContext(b.Context()); err != nil {
				return err
			}
			return assert.Err(m.UnlockContext(b.Context()))
		})
	})
	b.Run("plain", func(b *testing.B) {
		sample(b, func() error {
			if ok, err := c.SetNX(b.Context(), "plain", "x", ttl).Result(); err != nil || !ok {
				return errors.Join(err, errHeld)
			}
			return c.Del(b.Context(), "plain").Err()
		})
	})
}

// BenchmarkDirectory acquires and releases one lock in a directory. Ours is a lease, which other machines see, too, on a
// directory that is open. A lock of flock(2) ends with its process, and opens its file each time.
func BenchmarkDirectory(b *testing.B) {
	for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
		b.Run("repolock-"+mode.String(), func(b *testing.B) {
			s, err := dir.Open(b.Context(), b.TempDir())
			assert.OK(b, err)
			l, err := replock.New(s, replock.Options{TTL: ttl, Beside: replock.BesideNobody})
			assert.OK(b, err)
			try := l.TryShared
			if mode == replock.Exclusive {
				try = l.TryExclusive
			}
			sample(b, func() error {
				k, err := try(b.Context(), "bench")
				if err != nil {
					return err
				}
				return k.Release(b.Context())
			})
		})
	}
	b.Run("gofrs-flock", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "lock")
		sample(b, func() error {
			f := flock.New(path)
			if ok, err := f.TryLock(); err != nil || !ok {
				return errors.Join(err, errHeld)
			}
			return f.Unlock()
		})
	})
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// BenchmarkPostgres acquires and releases one lock on one server. Ours makes a connection for each
// lock. The plain lock on a connection that is open already asks nothing about the server, and a
// loss of the connection isn't noticed.
func BenchmarkPostgres(b *testing.B) {
	url := "postgres://postgres@" + pgtest.New(b).Address() + "/postgres?sslmode=disable"
	b.Run("repolock", func(b *testing.B) {
		target, err := postgres.Parse(url + "&key=ours")
		assert.OK(b, err)
		backend, err := postgres.Open(target)
		assert.OK(b, err)
		defer backend.Close()
		repolock(b, backend)
	})
	connect := func(b *testing.B) *pgconn.PgConn {
		c, err := pgconn.Connect(b.Context(), url)
		assert.OK(b, err)
		return c
	}
	b.Run("connect-lock-close", func(b *testing.B) {
		sample(b, func() error {
			c := connect(b)
			return errors.Join(advisoryLock(b.Context(), c, "connected"), c.Close(b.Context()))
		})
	})
	b.Run("plain", func(b *testing.B) {
		c := connect(b)
		defer c.Close(b.Context())
		sample(b, func() error { return advisoryLock(b.Context(), c, "plain") })
	})
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
