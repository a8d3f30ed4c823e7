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

// Backend is a locking.Backend, Inspector, Breaker and Examiner. Its methods can be called concurrently. They return
// when their contexts end; TryLock returns up to a second later. Without a deadline, each step of a request (the
// connection, the write and the answer) ends after 5 seconds.
type Backend struct {
	client   *goredis.Client
	prefix   string
	server   string // the server, for messages
	password string // needed to remove it from messages
	opts     Options

	takedownLimit time.Duration

	life  context.Context // ends with Close
	end   context.CancelFunc
	heard atomic.Int64 // number of reads that have returned data
	quiet atomic.Bool  // the server refuses notes

	calls sync.WaitGroup // start adds to it while it holds mu

	mu      sync.Mutex       // guards orphans, and keeps new calls from starting during Close
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

// milliseconds rounds a ttl up, so that the server doesn't free the lock too early. It rounds the largest Duration
// down, because the result must fit into a Duration.
func milliseconds(ttl time.Duration) int64 {
	return int64(min(ttl, math.MaxInt64-time.Millisecond+1)+time.Millisecond-1) / int64(time.Millisecond)
}

// TryLock acquires the lock of a key. Prefix and key have together at most 512 bytes, in UTF-8, without control
// characters. The ttl is at least 1 ms, and rounded up to milliseconds. After an error the caller has no lock. If the
// error says so, the lock can be held until its ttl is over.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if err := b.check(ctx, key); err != nil {
		return locking.Handle{}, false, err
	}
	if ttl < time.Millisecond {
		return locking.Handle{}, false, fmt.Errorf("lock %q: redis counts milliseconds: the ttl must be at least 1ms, not %v", key, ttl)
	}
	for range maxOrphans + 1 {
		h := locking.NewHandle(key, ttl)
		outcome, err := b.try(ctx, h)
		if err == nil && outcome == acquired {
			return h, true, nil
		}
		if err != nil || outcome == held {
			return locking.Handle{}, false, err
		}
	}
	return locking.Handle{}, false, nil
}

// outcome is the result of try.
type outcome int

const (
	held     outcome = iota // another holder has the lock
	acquired                // the lock was acquired
	retry                   // an orphan was removed: try again
)

// try tries to acquire a lock with the token of a handle.
func (b *Backend) try(ctx context.Context, h locking.Handle) (outcome, error) {
	const not = "lock %q wasn't acquired"
	heard := b.heard.Load()
	set := b.send(ctx, h, b.newNote(h), "SET", b.prefix+h.Key(), h.Token(), "NX", "PX", milliseconds(h.TTL()))
	answer, err := set.wait(ctx)
	refused := errors.Is(err, goredis.Nil) // another holder has the lock
	switch {
	case err == nil && answer == "OK":
		return acquired, nil
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
		return acquired, nil
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
	return retry, nil
}

// takedown removes the lock that set might have stored, even if ctx has ended. It returns the result as a text for an
// error.
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

// maxOrphans is the number of orphans that a Backend remembers.
const maxOrphans = 64

// addOrphan records an orphan: the handle of a failed attempt whose SET the server might still execute. TryLock has
// returned this handle to no caller.
func (b *Backend) addOrphan(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans = append(b.orphans, h)
	if len(b.orphans) > maxOrphans {
		b.orphans = slices.Delete(b.orphans, 0, 1)
	}
}

// orphan returns the orphan that has this token.
func (b *Backend) orphan(token string) (h locking.Handle, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.orphans, func(h locking.Handle) bool { return h.Token() == token })
	if i < 0 {
		return h, false
	}
	return b.orphans[i], true
}

// Renew makes the lock last for its ttl after the server executes the request. It returns ErrLost if the lock is gone
// or another holder has it. After another error the lock is renewed or unchanged.
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

// Release releases the lock. It returns ErrLost if the lock is gone or another holder has it. After another error the
// lock is free, or expires. If a request isn't answered, Release repeats it once. If the second request finds no lock,
// the error isn't ErrLost, because the first request might have released it.
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

// verify returns the error that the code of a script means, or nil.
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

// The results of the scripts. If GET fails, a script returns Redis' error, because the error shows nothing about the
// lock. Only if the key has the wrong type, it returns foreign.
const (
	absent  = 0 // the key doesn't exist
	done    = 1
	foreign = 2 // another holder has the lock
)

// compare is the beginning of the scripts. It sets v to the value of the key. A key that isn't a string belongs to
// another holder.
const compare = `local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' then
  if v.err and string.find(v.err, 'WRONGTYPE', 1, true) then return 2 end
  return v
end
if not v then return 0 end
`

const (
	// renewScript takes the token and the ttl in ms.
	renewScript = compare + `if v ~= ARGV[1] then return 2 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`
	// releaseScript takes the token.
	releaseScript = compare + `if v ~= ARGV[1] then return 2 end
return redis.call('DEL', KEYS[1])`
	// breakScript takes the revision.
	breakScript = compare + `if redis.sha1hex(v) ~= ARGV[1] then return 2 end
return redis.call('DEL', KEYS[1])`
	// noteScript takes the keys of the lock and of the note, the token, the note (or dropNote or keepNote), and the ttl
	// in ms.
	noteScript = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[2]) end
if ARGV[2] == '+' then return redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1`
)

// Arguments of noteScript in the place of a new note.
const (
	dropNote = ""  // delete it
	keepNote = "+" // renew it
)

var errClosed = errors.New("the backend is closed")

// call is a request that runs in a goroutine. Its caller can stop waiting when a context ends. go-redis itself ignores
// that end, unless the context has a deadline.
type call[T any] struct {
	done  chan struct{}
	value T // once done is closed
	err   error
}

// start runs f in a goroutine. f ends at the deadline of ctx, when one of its steps takes longer than stepLimit, or at
// Close.
func start[T any](ctx context.Context, b *Backend, f func(context.Context) (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		c.err = errClosed
		close(c.done)
		return c
	}
	b.calls.Go(func() {
		defer close(c.done)
		c.value, c.err = f(ctx)
	})
	return c
}

// wait returns the result of the call. If ctx ends first, it returns the error of ctx.
func (c *call[T]) wait(ctx context.Context) (T, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default:
			return *new(T), ctx.Err()
		}
	}
	return c.value, c.err
}

// send sends a command for the lock of a handle. In the same packet it sends noteScript with the argument note, whose
// errors it ignores.
func (b *Backend) send(ctx context.Context, h locking.Handle, note string, command ...any) *call[any] {
	return start(ctx, b, func(ctx context.Context) (any, error) {
		pipe, name := b.client.Pipeline(), b.prefix+h.Key()
		noting := func(when bool) (noted *goredis.Cmd) {
			if when && !b.quiet.Load() {
				noted = pipe.Do(ctx, "EVAL", noteScript, 2, name, notePrefix+name, h.Token(), note, milliseconds(h.TTL()))
			}
			return noted
		}
		before := noting(note == dropNote) // noteScript must still find the token
		answer := pipe.Do(ctx, command...)
		after := noting(note != dropNote)
		if err := run(ctx, pipe); err != nil {
			return nil, err
		}
		for _, noted := range []*goredis.Cmd{before, after} {
			for _, refusal := range []string{"NOPERM", "CROSSSLOT", "unknown command"} { // ACL, cluster, proxy
				if noted != nil && goredis.HasErrorPrefix(noted.Err(), refusal) {
					b.quiet.Store(true)
				}
			}
		}
		return answer.Result()
	})
}

// run executes a pipeline. It returns the pipeline's error if no command has its own error, for example because
// go-redis has no connection.
func run(ctx context.Context, pipe goredis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	for _, c := range commands {
		if c.Err() != nil {
			return nil
		}
	}
	return err
}

// script sends a script for the lock of a handle, and noteScript with the argument note.
func (b *Backend) script(ctx context.Context, h locking.Handle, note, script string, args ...any) (code int64, err error) {
	command := append([]any{"EVAL", script, 1, b.prefix + h.Key()}, args...)
	value, err := b.send(ctx, h, note, command...).wait(ctx)
	if err != nil {
		return 0, err
	}
	code, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("%w: the answer to a script isn't a number", errOdd)
	}
	return code, nil
}

// lookup returns the value of a lock's key. present is set if the key exists, even if it isn't a string.
func (b *Backend) lookup(ctx context.Context, key string) (value string, present bool) {
	value, err := start(ctx, b, func(ctx context.Context) (string, error) {
		return b.client.Get(ctx, b.prefix+key).Result()
	}).wait(ctx)
	return value, err == nil || goredis.HasErrorPrefix(err, "WRONGTYPE")
}
