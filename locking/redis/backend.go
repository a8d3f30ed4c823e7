package redis

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// Backend is a locking.Backend, Inspector, Breaker and Examiner. Its methods can be called
// concurrently. They return when their contexts end; TryLock can take a second longer, and
// without a deadline each of their steps is over after 5 seconds.
type Backend struct {
	client   goredis.UniversalClient
	owned    bool // the client is ours: it retries nothing, and Close closes it
	prefix   string
	server   string // in messages
	password string // to keep it out of messages
	opts     Options

	takedownLimit time.Duration

	life  context.Context // ends with Close
	end   context.CancelFunc
	heard atomic.Int64 // reads that have brought something, on an owned client
	quiet atomic.Bool  // the server refuses notes

	calls sync.WaitGroup // which mu adds to

	mu      sync.Mutex
	closed  bool
	orphans []string // tokens of attempts without a known end
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
	_ locking.Examiner  = (*Backend)(nil)
)

// maxName is the most bytes that the prefix and the key have together.
const maxName = 512

// checkName returns an ErrKey for a name of a lock that can't be had.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("%w: prefix and key have %d bytes, more than %d", locking.ErrKey, len(name), maxName)
	case bad(name):
		return fmt.Errorf("%w: %q has control characters, or isn't UTF-8", locking.ErrKey, name)
	case strings.HasPrefix(name, notePrefix):
		return fmt.Errorf("%w: %q begins with %s, where the notes are", locking.ErrKey, name, notePrefix)
	}
	return nil
}

func (b *Backend) check(ctx context.Context, key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", locking.ErrKey)
	}
	if err := checkName(b.prefix + key); err != nil {
		return err
	}
	return ctx.Err()
}

// milliseconds rounds up, so that the server doesn't free a lock before its holder expects it. The largest
// ttl, of 292 years, it rounds down: what is returned must be a time.Duration again.
func milliseconds(ttl time.Duration) int64 {
	return int64(min(ttl, math.MaxInt64-time.Millisecond+1)+time.Millisecond-1) / int64(time.Millisecond)
}

// TryLock acquires the lock of a key with at most 512 bytes, prefix included, in UTF-8 and without
// control characters. The ttl must be at least 1 ms; it is rounded up to whole milliseconds. After
// an error nothing is held, or the error says that the lock can be held until its ttl is over.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	var none locking.Handle
	if err := b.check(ctx, key); err != nil {
		return none, false, err
	}
	if ttl < time.Millisecond {
		return none, false, fmt.Errorf("lock %q: redis counts milliseconds: the ttl must be at least 1ms, not %v", key, ttl)
	}
	for range maxOrphans + 1 {
		h := locking.NewHandle(key, ttl)
		verdict, err := b.try(ctx, h)
		switch {
		case err != nil:
			return none, false, err
		case verdict == ours:
			return h, true, nil
		case verdict == held:
			return none, false, nil
		}
	}
	return none, false, nil
}

// Renew lets the lock expire a ttl from when the server executes it. ErrLost is returned if the
// server has no such lock, or another holder's. After another error it isn't known whether the
// lock was renewed.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	if err := b.checkHandle(ctx, h); err != nil {
		return err
	}
	var code int
	heard := b.heard.Load()
	err := b.do(ctx, func(ctx context.Context) (err error) {
		code, err = b.script(ctx, renewScript, b.noteCommand(h, keepNote), false, h.Key(), h.Token(), milliseconds(h.TTL()))
		return err
	})
	if err != nil {
		return b.fail(heard, err, "lock %q: it isn't known whether it was renewed", h.Key())
	}
	return b.verify(h, code)
}

// Release frees the lock. ErrLost is returned if the server has no such lock, or another holder's.
// After another error it isn't known whether the lock is free; it expires. Release repeats a
// request that wasn't answered. If the lock is gone then, the error is no ErrLost, because the
// request without an answer can have freed it.
func (b *Backend) Release(ctx context.Context, h locking.Handle) error {
	if err := b.checkHandle(ctx, h); err != nil {
		return err
	}
	heard := b.heard.Load()
	code, err := b.release(ctx, h)
	if err == nil {
		return b.verify(h, code)
	}
	if ctx.Err() == nil && !answered(err) {
		first := err
		if code, err = b.release(ctx, h); err == nil {
			if code == done {
				return nil
			}
			return b.fail(heard, first, "lock %q: the answer to its release was lost: "+
				"the lock is gone now, by this release or before it", h.Key())
		}
	}
	return b.fail(heard, err, "lock %q: it isn't known whether it was released; it expires within %v", h.Key(), h.TTL())
}

func (b *Backend) release(ctx context.Context, h locking.Handle) (code int, err error) {
	err = b.do(ctx, func(ctx context.Context) (err error) {
		var got int
		got, err = b.script(ctx, releaseScript, b.noteCommand(h, dropNote), true, h.Key(), h.Token())
		if err == nil {
			code = got
		}
		return err
	})
	if err != nil {
		return 0, err // without code, which a call that goes on can write
	}
	return code, nil
}

// Cleanup does nothing: the server removes what has expired.
func (b *Backend) Cleanup(ctx context.Context) error { return ctx.Err() }

func (b *Backend) checkHandle(ctx context.Context, h locking.Handle) error {
	if h == (locking.Handle{}) || b.check(context.Background(), h.Key()) != nil {
		return fmt.Errorf("lock %q: no handle of this backend: %w", h.Key(), locking.ErrLost)
	}
	return ctx.Err()
}

// verify returns the error that a code of a script means.
func (b *Backend) verify(h locking.Handle, code int) error {
	switch code {
	case done:
		return nil
	case absent:
		return fmt.Errorf("%s: lock %q: %w: it has expired, was removed or evicted, or the server has forgotten it",
			b.server, h.Key(), locking.ErrLost)
	case foreign:
		return fmt.Errorf("%s: lock %q: %w: another holder has it", b.server, h.Key(), locking.ErrLost)
	}
	return fmt.Errorf("%s: lock %q: a script returned %d: the server doesn't behave as Redis: %w",
		b.server, h.Key(), code, locking.ErrUnfit)
}

// script runs a script on a lock, and a note with it in one packet, before it or after it. The
// note's error is ignored.
func (b *Backend) script(
	ctx context.Context, s *goredis.Script, note []any, noteFirst bool, key string, args ...any,
) (int, error) {
	pipe, keys := b.client.Pipeline(), []string{b.prefix + key}
	var noted *goredis.Cmd
	if note != nil && noteFirst {
		noted = pipe.Do(ctx, note...)
	}
	got := s.EvalSha(ctx, pipe, keys, args...)
	if note != nil && !noteFirst {
		noted = pipe.Do(ctx, note...)
	}
	if err := run(ctx, pipe); err != nil {
		return 0, err
	}
	b.heed(noted)
	if goredis.HasErrorPrefix(got.Err(), "NOSCRIPT") {
		got = s.Eval(ctx, b.client, keys, args...)
	}
	if got.Err() != nil {
		return 0, got.Err()
	}
	code, ok := got.Val().(int64)
	if !ok {
		return 0, fmt.Errorf("%w: the answer to a script is no number", errOdd)
	}
	return int(code), nil
}

// run executes a pipeline. It returns an error only if the commands have none: without a connection
// go-redis leaves them as they are, without a value.
func run(ctx context.Context, pipe goredis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	for _, c := range commands {
		if c.Err() != nil {
			return nil
		}
	}
	return err
}
