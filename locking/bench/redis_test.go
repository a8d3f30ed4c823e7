package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking/redis"
)

const ttl = time.Minute

// BenchmarkRedis acquires and releases one lock on one server.
func BenchmarkRedis(b *testing.B) {
	s := redistest.New(b)
	b.Run("repolock", func(b *testing.B) { ours(b, s.Addr()) })
	b.Run("redsync", func(b *testing.B) { theirs(b, s.Addr()) })
	b.Run("plain", func(b *testing.B) { plain(b, s.Addr()) })
}

func ours(b *testing.B, address string) {
	target, err := redis.Parse("redis://" + address + "/0?key=ours")
	if err != nil {
		b.Fatal(err)
	}
	backend, err := redis.Open(target, redis.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	sample(b, func() error {
		h, ok, err := backend.TryLock(b.Context(), "ours", ttl)
		if err != nil || !ok {
			return errors.Join(err, errors.New("not acquired"))
		}
		return backend.Release(b.Context(), h)
	})
}

// theirs is redsync with one server.
func theirs(b *testing.B, address string) {
	c := goredislib.NewClient(&goredislib.Options{Addr: address})
	defer c.Close()
	sync := redsync.New(goredis.NewPool(c))
	sample(b, func() error {
		m := sync.NewMutex("theirs", redsync.WithExpiry(ttl), redsync.WithTries(1))
		if err := m.LockContext(b.Context()); err != nil {
			return err
		}
		_, err := m.UnlockContext(b.Context())
		return err
	})
}

// plain is SET and DEL without a token: a holder whose lock has expired deletes another's.
func plain(b *testing.B, address string) {
	c := goredislib.NewClient(&goredislib.Options{Addr: address})
	defer c.Close()
	sample(b, func() error {
		if ok, err := c.SetNX(b.Context(), "plain", "x", ttl).Result(); err != nil || !ok {
			return errors.Join(err, errors.New("not acquired"))
		}
		return c.Del(b.Context(), "plain").Err()
	})
}
