package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/locking"
)

// notePrefix and the lock's key make the key of its note. Locks can't have this prefix, so that a
// program that lists locks doesn't list notes.
const notePrefix = "repolock:holder:"

// note describes a holder to other programs.
type note struct {
	Revision string    `json:"revision"` // of the lock that the note describes
	Holder   string    `json:"holder"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Version  string    `json:"version,omitempty"`
	Acquired time.Time `json:"acquired"`
	TTL      int64     `json:"ttl_ms"`
}

// revision hashes a token, so that it stays secret. breakScript computes the same.
func revision(token string) string {
	sum := sha1.Sum([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newNote returns the note of a lock that is acquired now.
func (b *Backend) newNote(h locking.Handle) string {
	host, _ := os.Hostname()
	text, err := json.Marshal(note{
		revision(h.Token()), b.opts.Holder, host, os.Getpid(), b.opts.Version, clock.System{}.Now().UTC(),
		milliseconds(h.TTL()),
	})
	if err != nil {
		return dropNote // the clock shows a year after 9999
	}
	return string(text)
}

// Results of PTTL for a key without expiry, and without a key. go-redis returns them as nanoseconds.
const (
	noTTL   = time.Duration(-1)
	goneTTL = time.Duration(-2)
)

// Inspect returns the holder of a lock from its note. Acquired is the holder's clock. The lock expires
// at Renewed plus TTL, by this machine's clock. If another program's lock has no note, TTL is the
// remaining time, Renewed is now, and Acquired is zero. Stale is never set, because the server removes
// expired locks.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := b.check(ctx, key); err != nil {
		return nil, err
	}
	heard := b.heard.Load()
	info, err := start(ctx, b, func(ctx context.Context) (*locking.Info, error) { return b.inspect(ctx, key) }).wait(ctx)
	if err != nil {
		return nil, b.fail(heard, err, "lock %q can't be inspected", key)
	}
	return info, nil
}

func (b *Backend) inspect(ctx context.Context, key string) (*locking.Info, error) {
	pipe, name := b.client.Pipeline(), b.prefix+key
	value, ttl := pipe.Get(ctx, name), pipe.PTTL(ctx, name)
	text := goredis.NewStringResult("", goredis.Nil)
	if !b.quiet.Load() {
		text = pipe.Get(ctx, notePrefix+name)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	now, left := clock.System{}.Now(), ttl.Val()
	switch err := value.Err(); {
	case errors.Is(err, goredis.Nil):
		return nil, nil
	case goredis.HasErrorPrefix(err, "WRONGTYPE") && ttl.Err() == nil:
		return &locking.Info{Key: key, Renewed: now, TTL: max(left, 0), Trouble: fmt.Sprintf("the redis key %q isn't a string", name)}, nil
	case err != nil:
		return nil, err
	case ttl.Err() != nil:
		return nil, ttl.Err()
	case left == goneTTL:
		return nil, nil
	}
	info := &locking.Info{Key: key, Revision: revision(value.Val())}
	if left == noTTL {
		info.Trouble = fmt.Sprintf("the redis key %q doesn't expire: only its holder frees the lock", name)
		return info, nil
	}
	info.Renewed, info.TTL = now, left
	var n note
	if text.Err() != nil || json.Unmarshal([]byte(text.Val()), &n) != nil || n.Revision != info.Revision {
		return info, nil
	}
	info.Holder, info.Host, info.PID, info.Acquired = b.clean(n.Holder), b.clean(n.Host), n.PID, n.Acquired
	if ttl := time.Duration(n.TTL) * time.Millisecond; ttl >= left {
		info.Renewed, info.TTL = now.Add(left-ttl), ttl
	}
	return info, nil
}

// Break removes the lock that Inspect has described, if its token is still the same. The holder runs
// on until its next renewal. If stale is set, Break does nothing, because no lock in Redis is stale.
// Break returns an error for a key that isn't a string. It can't distinguish holders of a program that
// stores the same value for each.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := b.check(ctx, seen.Key); err != nil || stale {
		return false, err
	}
	name, heard := b.prefix+seen.Key, b.heard.Load()
	if seen.Revision == "" {
		return false, fmt.Errorf("%s: lock %q wasn't broken: the key %q isn't a string, so it isn't a lock of this format: "+
			"remove it by DEL once you know whose it is", b.server, seen.Key, name)
	}
	code, err := start(ctx, b, func(ctx context.Context) (int, error) {
		return b.client.Eval(ctx, breakScript, []string{name}, seen.Revision).Int()
	}).wait(ctx)
	if err != nil {
		return false, b.fail(heard, err, "lock %q: it isn't known whether it was broken", seen.Key)
	}
	return code == done, nil
}
