package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// Inspect returns the holder of a lock as its note describes it, and never its token. TTL is the
// ttl of the lock, and Renewed is when it began, so that both together are when the lock expires.
// If there is no note, as beside another program's lock, TTL is the rest of the ttl, Renewed is
// now, and Acquired is zero. Stale is never set: an expired lock isn't there.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := b.check(ctx, key); err != nil {
		return nil, err
	}
	name, heard := b.prefix+key, b.heard.Load()
	var value, text *goredis.StringCmd
	var left *goredis.DurationCmd
	err := b.do(ctx, func(ctx context.Context) error {
		pipe := b.client.Pipeline()
		value, left = pipe.Get(ctx, name), pipe.PTTL(ctx, name)
		if !b.quiet.Load() {
			text = pipe.Get(ctx, notePrefix+name)
		}
		if err := run(ctx, pipe); err != nil {
			return err
		}
		if err := value.Err(); err != nil && !errors.Is(err, goredis.Nil) && !goredis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
		return left.Err()
	})
	if err != nil {
		return nil, b.fail(heard, err, "lock %q can't be inspected", key)
	}
	if errors.Is(value.Err(), goredis.Nil) || left.Val() == goneTTL {
		return nil, nil
	}
	return b.info(key, value, left.Val(), text), nil
}

// What PTTL returns for a key without expiry, and for none. go-redis returns them as nanoseconds.
const (
	noTTL   = time.Duration(-1)
	goneTTL = time.Duration(-2)
)

func (b *Backend) info(key string, value *goredis.StringCmd, left time.Duration, text *goredis.StringCmd,
) *locking.Info {
	now := b.opts.Clock.Now()
	if value.Err() != nil {
		trouble := fmt.Sprintf("the redis key %q is no string", b.prefix+key)
		return &locking.Info{Key: key, Renewed: now, TTL: max(left, 0), Trouble: trouble}
	}
	info := &locking.Info{Key: key, Revision: revision(value.Val())}
	if left == noTTL {
		info.Trouble = fmt.Sprintf("the redis key %q doesn't expire: only its holder frees the lock", b.prefix+key)
		return info
	}
	info.Renewed, info.TTL = now, left
	var n note
	if text == nil || text.Err() != nil || json.Unmarshal([]byte(text.Val()), &n) != nil || n.Revision != info.Revision {
		return info
	}
	info.Holder, info.Host, info.PID, info.Acquired = b.clean(n.Holder), b.clean(n.Host), n.PID, n.Acquired
	if ttl := time.Duration(n.TTL) * time.Millisecond; ttl >= left {
		info.Renewed, info.TTL = now.Add(left-ttl), ttl
	}
	return info
}

// Break removes the lock if its token is still that of seen. A lock with stale set is never there.
// The holder runs on until its next renewal. Break refuses a key that is no string. Programs that
// store the same value for each holder have the same Revision for all.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := b.check(ctx, seen.Key); err != nil {
		return false, err
	}
	if stale {
		return false, nil
	}
	if seen.Revision == "" {
		return false, fmt.Errorf("%s: lock %q wasn't broken: the key %q is no string, and no lock that repolock knows: "+
			"remove it yourself",
			b.server, seen.Key, b.prefix+seen.Key)
	}
	heard := b.heard.Load()
	var code int
	err := b.do(ctx, func(ctx context.Context) (err error) {
		code, err = b.script(ctx, breakScript, nil, false, seen.Key, seen.Revision)
		return err
	})
	if err != nil {
		return false, b.fail(heard, err, "lock %q: it isn't known whether it was broken", seen.Key)
	}
	return code == done, nil
}
