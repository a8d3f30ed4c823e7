package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// Results of the scripts. A script returns an error of Redis as it is, because it shows nothing about the
// lock, unless the error is about the key's type.
const (
	absent  = 0 // the key doesn't exist
	done    = 1
	foreign = 2 // another holder has the lock
)

// compare sets v to the value of the key. A key that isn't a string belongs to another holder.
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
	// noteScript takes the keys of the lock and of the note, the token, the note (or dropNote or
	// keepNote), and the ttl in ms.
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

// call is a request in a goroutine. Its caller can give it up when a context ends, which go-redis
// ignores unless the context has a deadline.
type call[T any] struct {
	done  chan struct{}
	value T // once done is closed
	err   error
}

// start runs f in a goroutine. f ends with the deadline of ctx, after stepLimit, or with Close.
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

// wait returns the result of the call, or the error of the context if it ends first.
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

// send sends a command for the lock of a handle and, in the same packet, noteScript with the argument
// note. It ignores errors of noteScript.
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

// run executes a pipeline. It returns the pipeline's error if no command has an error of its own: that
// is so if go-redis has no connection.
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
