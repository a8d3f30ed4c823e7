package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// verdict is how an attempt has ended.
type verdict int

const (
	held  verdict = iota // by another holder
	ours                 // acquired
	again                // an orphan had the lock
)

// try attempts to acquire a lock with the token of a handle.
func (b *Backend) try(ctx context.Context, h locking.Handle) (verdict, error) {
	heard := b.heard.Load()
	var got bool
	set := b.start(ctx, func(ctx context.Context) (err error) {
		got, err = b.set(ctx, h)
		return err
	})
	err := set.wait(ctx)
	switch {
	case err == nil && got:
		return ours, nil
	case err == nil:
		return b.refused(ctx, h, heard)
	case errors.Is(err, errClosed), neverSent(err), b.owned && answered(err):
		return held, b.fail(heard, err, "lock %q wasn't acquired", h.Key())
	}
	return b.unknown(ctx, h, set, heard, err)
}

// set sends SET, and the note in the same packet. It reports whether SET was executed.
func (b *Backend) set(ctx context.Context, h locking.Handle) (bool, error) {
	pipe := b.client.Pipeline()
	set := pipe.Do(ctx, "SET", b.prefix+h.Key(), h.Token(), "NX", "PX", milliseconds(h.TTL()))
	var noted *goredis.Cmd
	if note := b.noteCommand(h, b.newNote(h)); note != nil {
		noted = pipe.Do(ctx, note...)
	}
	if err := run(ctx, pipe); err != nil {
		return false, err
	}
	b.heed(noted)
	if errors.Is(set.Err(), goredis.Nil) {
		return false, nil
	}
	if set.Err() == nil && set.Val() != "OK" {
		return false, fmt.Errorf("%w: the answer to SET is neither OK nor nil", errOdd)
	}
	return set.Err() == nil, set.Err()
}

// lookup returns the value of a lock, "" if there is none. present is set for any other value, and
// for a key of another type.
func (b *Backend) lookup(ctx context.Context, key string) (value string, present bool, err error) {
	var got string
	err = b.do(ctx, func(ctx context.Context) (err error) {
		got, err = b.client.Get(ctx, b.prefix+key).Result()
		return err
	})
	switch {
	case err == nil:
		return got, true, nil
	case errors.Is(err, goredis.Nil):
		return "", false, nil
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return "", true, nil
	}
	return "", false, err
}

// refused decides about an attempt that was answered: the key is there. Its value can be our own
// token, if the client has repeated SET, or that of an earlier attempt.
func (b *Backend) refused(ctx context.Context, h locking.Handle, heard int64) (verdict, error) {
	value, _, err := b.lookup(ctx, h.Key())
	switch {
	case err != nil && b.owned: // SET was sent once, and was refused
		return held, nil
	case err != nil:
		return held, b.takedown(ctx, h, nil, heard, err)
	case value == h.Token():
		return ours, nil
	case b.isOrphan(value):
		return again, b.removeOrphan(ctx, h.Key(), value, heard)
	}
	return held, nil
}

// unknown decides about an attempt that wasn't answered.
func (b *Backend) unknown(
	ctx context.Context, h locking.Handle, set *call, heard int64, cause error,
) (verdict, error) {
	if ctx.Err() == nil && !errors.Is(cause, errOdd) {
		value, present, err := b.lookup(ctx, h.Key())
		switch {
		case err != nil || !present:
		case value == h.Token():
			return ours, nil
		case b.isOrphan(value):
			b.addOrphan(h.Token())
			return again, b.removeOrphan(ctx, h.Key(), value, heard)
		default:
			b.addOrphan(h.Token())
			return held, nil
		}
	}
	return held, b.takedown(ctx, h, set, heard, cause)
}

// takedown removes what an attempt might have stored, in a context of its own, and returns the
// error of the attempt.
func (b *Backend) takedown(ctx context.Context, h locking.Handle, set *call, heard int64, cause error) error {
	b.addOrphan(h.Token())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.takedownLimit)
	defer cancel()
	if set != nil { // lest the takedown overtake it
		short, cancel := context.WithTimeout(ctx, b.takedownLimit/4)
		_ = set.wait(short)
		cancel()
	}
	var left string
	switch code, err := b.release(ctx, h); {
	case err != nil:
		left = fmt.Sprintf("if the server has executed SET, the lock is held until its ttl of %v is over", h.TTL())
	case code == done:
		left = "nothing is held"
	default:
		left = fmt.Sprintf("nothing is held now; if the server executes SET later, the lock is held for %v", h.TTL())
	}
	return b.failWith(left, heard, cause, "lock %q wasn't acquired", h.Key())
}

// maxOrphans is how many tokens a Backend remembers.
const maxOrphans = 64

func (b *Backend) addOrphan(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans = append(b.orphans, token)
	if len(b.orphans) > maxOrphans {
		b.orphans = slices.Delete(b.orphans, 0, 1)
	}
}

func (b *Backend) isOrphan(token string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.orphans, token)
}

// removeOrphan releases the lock of an attempt that has returned an error, so that no handle has
// its token.
func (b *Backend) removeOrphan(ctx context.Context, key, token string, heard int64) error {
	err := b.do(ctx, func(ctx context.Context) error {
		_, err := b.script(ctx, releaseScript, nil, false, key, token)
		return err
	})
	if err != nil {
		return b.fail(heard, err, "lock %q wasn't acquired: an earlier attempt of this process holds it "+
			"until its ttl is over", key)
	}
	return nil
}
