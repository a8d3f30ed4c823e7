package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// notePrefix is in front of the name of a lock in the key of its note. It is none of the locks'
// own prefixes, so that a program that lists the locks doesn't see the notes.
const notePrefix = "repolock:holder:"

// note is what others read about a holder.
type note struct {
	Revision string    `json:"revision"` // of the lock that the note is about
	Holder   string    `json:"holder"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Version  string    `json:"version,omitempty"`
	Acquired time.Time `json:"acquired"`
	TTL      int64     `json:"ttl_ms"`
}

// revision identifies a token without revealing it. The server's scripts compute it, too.
func revision(token string) string {
	sum := sha1.Sum([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newNote returns the note of a lock that is acquired now.
func (b *Backend) newNote(h locking.Handle) string {
	text, err := json.Marshal(note{
		revision(h.Token()), b.opts.Holder, b.opts.Host, b.opts.PID, b.opts.Version, b.opts.Clock.Now().UTC(),
		milliseconds(h.TTL()),
	})
	if err != nil {
		return dropNote // a year that JSON can't have
	}
	return string(text)
}

// What PTTL returns for a key without expiry, and for none. go-redis returns them as nanoseconds.
const (
	noTTL   = time.Duration(-1)
	goneTTL = time.Duration(-2)
)

// Inspect returns the holder of a lock as its note describes it, and never its token. TTL is the
// ttl of the lock, and Renewed is when it began, so that both together are when the lock expires.
// If there is no note, as beside another program's lock, TTL is the rest of the ttl, Renewed is
// now, and Acquired is zero. Stale is never set: an expired lock isn't there.
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
	now, left := b.opts.Clock.Now(), ttl.Val()
	switch err := value.Err(); {
	case errors.Is(err, goredis.Nil):
		return nil, nil
	case goredis.HasErrorPrefix(err, "WRONGTYPE") && ttl.Err() == nil:
		return &locking.Info{Key: key, Renewed: now, TTL: max(left, 0), Trouble: fmt.Sprintf("the redis key %q is no string", name)}, nil
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

// Break removes the lock if its token is still that of seen. A lock with stale set is never there.
// The holder runs on until its next renewal. Break refuses a key that is no string. Programs that
// store the same value for each holder have the same Revision for all.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := b.check(ctx, seen.Key); err != nil || stale {
		return false, err
	}
	name, heard := b.prefix+seen.Key, b.heard.Load()
	if seen.Revision == "" {
		return false, fmt.Errorf("%s: lock %q wasn't broken: the key %q is no string, and no lock that repolock knows: "+
			"remove it yourself", b.server, seen.Key, name)
	}
	code, err := start(ctx, b, func(ctx context.Context) (int, error) {
		return b.client.Eval(ctx, breakScript, []string{name}, seen.Revision).Int()
	}).wait(ctx)
	if err != nil {
		return false, b.fail(heard, err, "lock %q: it isn't known whether it was broken", seen.Key)
	}
	return code == done, nil
}
