package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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

	calls sync.WaitGroup // start adds to it while it holds mu

	mu      sync.Mutex
	closed  bool
	orphans []locking.Handle // of attempts without a known end
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
	_ locking.Examiner  = (*Backend)(nil)
)

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
	if err := b.check(ctx, key); err != nil {
		return locking.Handle{}, false, err
	}
	if ttl < time.Millisecond {
		return locking.Handle{}, false, fmt.Errorf("lock %q: redis counts milliseconds: the ttl must be at least 1ms, not %v", key, ttl)
	}
	for range maxOrphans + 1 {
		h := locking.NewHandle(key, ttl)
		verdict, err := b.try(ctx, h)
		if err == nil && verdict == ours {
			return h, true, nil
		}
		if err != nil || verdict == held {
			return locking.Handle{}, false, err
		}
	}
	return locking.Handle{}, false, nil
}

// verdict is how an attempt has ended.
type verdict int

const (
	held  verdict = iota // by another holder
	ours                 // acquired
	again                // an orphan had the lock
)

// try attempts to acquire a lock with the token of a handle.
func (b *Backend) try(ctx context.Context, h locking.Handle) (verdict, error) {
	const not = "lock %q wasn't acquired"
	heard := b.heard.Load()
	set := b.send(ctx, h, b.newNote(h), "SET", b.prefix+h.Key(), h.Token(), "NX", "PX", milliseconds(h.TTL()))
	answer, unsure := set.wait(ctx) // unsure is why it isn't known whether the server has executed SET, or will
	switch {
	case unsure == nil && answer == "OK":
		return ours, nil
	case unsure == nil:
		unsure = fmt.Errorf("%w: the answer to SET is neither OK nor nil", errOdd)
	case errors.Is(unsure, goredis.Nil): // the key is there
		unsure = nil
	case errors.Is(unsure, errClosed), neverSent(unsure), b.owned && answered(unsure):
		return held, b.fail(heard, unsure, not, h.Key())
	}
	if unsure == nil || ctx.Err() == nil && !errors.Is(unsure, errOdd) {
		value, present, err := b.lookup(ctx, h.Key())
		orphan, known := b.orphan(value)
		switch {
		case err == nil && value == h.Token(): // the answer was lost, or the client has repeated SET
			return ours, nil
		case err == nil && (present || unsure == nil):
			if unsure != nil {
				b.addOrphan(h)
			}
			if !known {
				return held, nil
			}
			if _, err := b.release(ctx, orphan); err != nil {
				return held, b.fail(heard, err, not+": an earlier attempt of this process holds it until its ttl is over", h.Key())
			}
			return again, nil
		case unsure == nil && b.owned: // SET was sent once, and was refused
			return held, nil
		case unsure == nil:
			unsure = err
		}
	}
	left := b.takedown(ctx, h, set)
	return held, fmt.Errorf("%w; %s", b.fail(heard, unsure, not, h.Key()), left)
}

// takedown removes what an attempt might have stored, in a context of its own. It returns what can be left.
func (b *Backend) takedown(ctx context.Context, h locking.Handle, set *call[any]) string {
	b.addOrphan(h)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.takedownLimit)
	defer cancel()
	short, cancelShort := context.WithTimeout(ctx, b.takedownLimit/4)
	_, _ = set.wait(short) // lest the takedown overtake it
	cancelShort()
	switch code, err := b.release(ctx, h); {
	case err != nil:
		return fmt.Sprintf("if the server has executed SET, the lock is held until its ttl of %v is over", h.TTL())
	case code == done:
		return "nothing is held"
	}
	return fmt.Sprintf("nothing is held now; if the server executes SET later, the lock is held for %v", h.TTL())
}

// maxOrphans is how many attempts a Backend remembers.
const maxOrphans = 64

func (b *Backend) addOrphan(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans = append(b.orphans, h)
	if len(b.orphans) > maxOrphans {
		b.orphans = slices.Delete(b.orphans, 0, 1)
	}
}

// orphan returns the attempt without a known end that has a token. TryLock returned an error for it, so
// that no caller has its handle.
func (b *Backend) orphan(token string) (h locking.Handle, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.orphans, func(h locking.Handle) bool { return h.Token() == token })
	if i < 0 {
		return h, false
	}
	return b.orphans[i], true
}

// Renew lets the lock expire a ttl from when the server executes it. ErrLost is returned if the
// server has no such lock, or another holder's. After another error it isn't known whether the
// lock was renewed.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	if err := b.checkHandle(ctx, h); err != nil {
		return err
	}
	heard := b.heard.Load()
	code, err := b.script(ctx, h, keepNote, renewScript, h.Token(), milliseconds(h.TTL()))
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

func (b *Backend) release(ctx context.Context, h locking.Handle) (code int64, err error) {
	return b.script(ctx, h, dropNote, releaseScript, h.Token())
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
func (b *Backend) verify(h locking.Handle, code int64) error {
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
