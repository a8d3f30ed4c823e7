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
// concurrently. They return when their contexts end, or TryLock a second later. Without a deadline,
// each request ends after 5 seconds.
type Backend struct {
	client   *goredis.Client
	prefix   string
	server   string // in messages
	password string // in order to remove it from messages
	opts     Options

	takedownLimit time.Duration

	life  context.Context // ends with Close
	end   context.CancelFunc
	heard atomic.Int64 // reads that have returned data
	quiet atomic.Bool  // the server refuses notes

	calls sync.WaitGroup // start adds to it while it holds mu

	mu      sync.Mutex       // guards orphans, and Close against new calls
	orphans []locking.Handle // see addOrphan
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

// milliseconds rounds a ttl up, so that the server doesn't free the lock too early. It rounds the
// largest Duration down, because the result must be a Duration again.
func milliseconds(ttl time.Duration) int64 {
	return int64(min(ttl, math.MaxInt64-time.Millisecond+1)+time.Millisecond-1) / int64(time.Millisecond)
}

// TryLock acquires the lock of a key. Prefix and key have at most 512 bytes, in UTF-8, without control
// characters. The ttl is at least 1 ms, and rounded up to milliseconds. After an error nothing is held,
// unless the error says that the lock can be held until its ttl is over.
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

// verdict is the result of try.
type verdict int

const (
	held  verdict = iota // another holder has the lock
	ours                 // the lock was acquired
	again                // an orphan was removed: try again
)

// try tries to acquire a lock with the token of a handle.
func (b *Backend) try(ctx context.Context, h locking.Handle) (verdict, error) {
	const not = "lock %q wasn't acquired"
	heard := b.heard.Load()
	set := b.send(ctx, h, b.newNote(h), "SET", b.prefix+h.Key(), h.Token(), "NX", "PX", milliseconds(h.TTL()))
	answer, err := set.wait(ctx)
	refused := errors.Is(err, goredis.Nil) // another holder has the lock
	switch {
	case err == nil && answer == "OK":
		return ours, nil
	case err == nil:
		err = fmt.Errorf("%w: the answer to SET is neither OK nor nil", errOdd)
	case errors.Is(err, errClosed), neverSent(err), answered(err) && !refused:
		return held, b.fail(heard, err, not, h.Key())
	}
	// Unless SET was refused, it isn't known whether the server has executed it, or will.
	value, present := "", false
	if refused || ctx.Err() == nil && !errors.Is(err, errOdd) {
		value, present = b.lookup(ctx, h.Key())
	}
	switch {
	case value == h.Token():
		return ours, nil
	case !refused && !present:
		left := b.takedown(ctx, h, set)
		return held, fmt.Errorf("%w; %s", b.fail(heard, err, not, h.Key()), left)
	case !refused:
		b.addOrphan(h)
	}
	orphan, known := b.orphan(value)
	if !known {
		return held, nil
	}
	if _, err := b.release(ctx, orphan); err != nil {
		return held, b.fail(heard, err, not+": an earlier attempt of this process holds it until its ttl is over", h.Key())
	}
	return again, nil
}

// takedown removes the lock that set might have stored, even if ctx has ended. It returns the result in
// words, for an error.
func (b *Backend) takedown(ctx context.Context, h locking.Handle, set *call[any]) string {
	b.addOrphan(h)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.takedownLimit)
	defer cancel()
	short, cancelShort := context.WithTimeout(ctx, b.takedownLimit/4)
	_, _ = set.wait(short) // so that the takedown doesn't overtake SET
	cancelShort()
	switch code, err := b.release(ctx, h); {
	case err != nil:
		return fmt.Sprintf("if the server has executed SET, the lock is held until its ttl of %v is over", h.TTL())
	case code == done:
		return "nothing is held"
	}
	return fmt.Sprintf("nothing is held now; if the server executes SET later, the lock is held for %v", h.TTL())
}

// maxOrphans bounds the number of orphans.
const maxOrphans = 64

// addOrphan records the handle of a failed attempt whose SET can still be executed. No caller has this
// handle.
func (b *Backend) addOrphan(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans = append(b.orphans, h)
	if len(b.orphans) > maxOrphans {
		b.orphans = slices.Delete(b.orphans, 0, 1)
	}
}

// orphan returns the orphan with a token.
func (b *Backend) orphan(token string) (h locking.Handle, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.orphans, func(h locking.Handle) bool { return h.Token() == token })
	if i < 0 {
		return h, false
	}
	return b.orphans[i], true
}

// Renew makes the lock last for its ttl after the server executes the request. It returns ErrLost if
// the lock is gone or another holder has it. After another error the lock is renewed or as it was.
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

// Release frees the lock. It returns ErrLost if the lock is gone or another holder has it. After
// another error the lock is free, or expires. Release repeats a request that wasn't answered once. If
// the second request finds no lock, the error isn't ErrLost, because the first one can have freed it.
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
			return b.fail(heard, first, "lock %q is free, but the answer to its release was lost: "+
				"it isn't known whether it was lost before", h.Key())
		}
	}
	return b.fail(heard, err, "lock %q: it isn't known whether it was released; it expires within %v", h.Key(), h.TTL())
}

func (b *Backend) release(ctx context.Context, h locking.Handle) (code int64, err error) {
	return b.script(ctx, h, dropNote, releaseScript, h.Token())
}

// Cleanup does nothing, because the server removes expired locks and notes.
func (b *Backend) Cleanup(ctx context.Context) error { return ctx.Err() }

func (b *Backend) checkHandle(ctx context.Context, h locking.Handle) error {
	if h == (locking.Handle{}) || b.check(context.Background(), h.Key()) != nil {
		return fmt.Errorf("lock %q: the handle isn't this backend's: %w", h.Key(), locking.ErrLost)
	}
	return ctx.Err()
}

// verify returns the error for the code that a script has returned.
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
