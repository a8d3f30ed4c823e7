package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// The scripts return one of these. An error of Redis that isn't about the key's type is returned
// as the error that it is: it says nothing about the lock.
const (
	absent  = 0 // there is no such key
	done    = 1
	foreign = 2 // another holder has the lock
)

// compare sets v to the value of the key. A key of another type is another holder's.
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
	// noteScript takes the lock, the note's key, the token, the note or what to do with it, and the
	// ttl in ms.
	noteScript = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[2]) end
if ARGV[2] == '+' then return redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1`
)

// What noteScript does with a note, instead of writing it.
const (
	dropNote = ""
	keepNote = "+" // for another ttl
)

// errClosed is returned by the methods of a closed Backend.
var errClosed = errors.New("the backend is closed")

// call is a request that goes on if its caller gives it up: go-redis looks at deadlines alone.
type call[T any] struct {
	done  chan struct{}
	value T // once done is closed
	err   error
}

// start runs f in a goroutine, which ends with the context's deadline, after stepLimit, or with
// Close.
func start[T any](ctx context.Context, b *Backend, f func(context.Context) (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
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

// send executes a command on the lock of a handle and, in the same packet, writes, keeps or drops the
// note of the lock. The note's error is ignored.
func (b *Backend) send(ctx context.Context, h locking.Handle, note string, command ...any) *call[any] {
	return start(ctx, b, func(ctx context.Context) (any, error) {
		pipe, name := b.client.Pipeline(), b.prefix+h.Key()
		noting := func(when bool) (noted *goredis.Cmd) {
			if when && !b.quiet.Load() {
				noted = pipe.Do(ctx, "EVAL", noteScript, 2, name, notePrefix+name, h.Token(), note, milliseconds(h.TTL()))
			}
			return noted
		}
		before := noting(note == dropNote) // while the token is there
		answer := pipe.Do(ctx, command...)
		after := noting(note != dropNote)
		if err := run(ctx, pipe); err != nil {
			return nil, err
		}
		for _, noted := range []*goredis.Cmd{before, after} {
			for _, refusal := range []string{"NOPERM", "CROSSSLOT", "unknown command"} { // the ACL, a cluster
				if noted != nil && goredis.HasErrorPrefix(noted.Err(), refusal) {
					b.quiet.Store(true)
				}
			}
		}
		return answer.Result()
	})
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

// script runs a script on the lock of a handle, and does something to its note.
func (b *Backend) script(ctx context.Context, h locking.Handle, note, script string, args ...any) (code int64, err error) {
	command := append([]any{"EVAL", script, 1, b.prefix + h.Key()}, args...)
	value, err := b.send(ctx, h, note, command...).wait(ctx)
	if err != nil {
		return 0, err
	}
	code, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("%w: the answer to a script is no number", errOdd)
	}
	return code, nil
}

// lookup returns the value of a lock, "" if there is none. present is set for any other value, and
// for a key of another type.
func (b *Backend) lookup(ctx context.Context, key string) (value string, present bool, err error) {
	value, err = start(ctx, b, func(ctx context.Context) (string, error) {
		return b.client.Get(ctx, b.prefix+key).Result()
	}).wait(ctx)
	switch {
	case errors.Is(err, goredis.Nil):
		return "", false, nil
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return "", true, nil
	}
	return value, err == nil, err
}
