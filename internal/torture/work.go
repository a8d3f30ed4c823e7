package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
)

// Work is the work of a child under its lock: a backup puts objects, and a prune deletes
// existing ones as well. The child logs each request, and each sign of another child.
type Work struct {
	ID   string        // unique in the run
	Mode judge.Mode    // of its lock
	Data string        // prefix of all objects; it ends in a slash
	Hold time.Duration // how long it takes if requests take no time
}

// ErrUnjudged is returned when there is no verdict: a log can't be written or understood, or
// a process hangs or crashed.
var ErrUnjudged error = fault.Unjudged

const (
	// putInterval is how often a child writes.
	putInterval = 500 * time.Millisecond
	// requestTimeout bounds a request of a child.
	requestTimeout = 20 * time.Second
	// maxDeletes is the number of objects that one prune deletes.
	maxDeletes = 20
	// maxError is the length at which an error is cut: a line of less than 4 KiB is written
	// to a pipe whole, or not at all if the writer is killed.
	maxError = 300
)

// Do does the work on the objects that open returns, and logs a judge.Event a line. It
// returns the error of the first request that fails.
func (w Work) Do(ctx context.Context, open func(context.Context) (Objects, error), log io.Writer) error {
	c := child{Work: w, log: log, own: w.Data + w.ID + "/", there: map[string]bool{}}
	err := c.note(judge.Event{Kind: judge.In})
	if err != nil {
		return err
	}
	if c.objects, err = open(ctx); err != nil {
		return err
	}
	end := clock.System{}.Elapsed() + w.Hold
	if w.Mode == judge.Exclusive {
		if err := c.prune(ctx); err != nil {
			return err
		}
	}
	if err := c.put(ctx, end); err != nil {
		return err
	}
	if err := c.compare(ctx); err != nil {
		return err
	}
	return c.note(judge.Event{Kind: judge.Out})
}

// child is a child at work.
type child struct {
	Work
	objects Objects
	log     io.Writer
	own     string // prefix of its own objects
	// there: the keys that must be there, unless another process deletes them.
	there map[string]bool
}

func (c *child) note(e judge.Event) error {
	e.At, e.ID = clock.System{}.Elapsed(), c.ID
	return write(c.log, e)
}

// do sends a request, and logs it before and after.
func (c *child) do(ctx context.Context, op, key string, request func(context.Context) error) error {
	if err := c.note(judge.Event{Kind: judge.Call, Op: op, Key: key}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := request(ctx)
	returned := judge.Event{Kind: judge.Return}
	if err != nil {
		returned.Error = fmt.Sprintf("%.*s", maxError, err.Error())
	}
	return errors.Join(c.note(returned), err)
}

// prune deletes existing objects.
func (c *child) prune(ctx context.Context) error {
	keys, err := c.list(ctx, c.Data)
	if err != nil {
		return err
	}
	for i, key := range keys {
		c.there[key] = i >= maxDeletes
		if c.there[key] {
			continue
		}
		if err := c.do(ctx, "delete", key, func(ctx context.Context) error { return c.objects.Delete(ctx, key) }); err != nil {
			return err
		}
	}
	return nil
}

// put puts an object every putInterval until the end, at least one.
func (c *child) put(ctx context.Context, end time.Duration) error {
	for n := 1; ; n++ {
		key := fmt.Sprint(c.own, n)
		err := c.do(ctx, "put", key, func(ctx context.Context) error {
			return c.objects.Put(ctx, key, []byte(c.ID))
		})
		if err != nil {
			return err
		}
		c.there[key] = true
		left := end - clock.System{}.Elapsed()
		if left <= 0 {
			return nil
		}
		if err := clock.Sleep(ctx, clock.System{}, min(left, putInterval)); err != nil {
			return err
		}
	}
}

// compare logs changes that the child didn't make: a prune looks at all objects, and a
// backup, beside which others write, at its own.
func (c *child) compare(ctx context.Context) error {
	prefix := c.own
	if c.Mode == judge.Exclusive {
		prefix = c.Data
	}
	keys, err := c.list(ctx, prefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !c.there[key] {
			if err := c.note(judge.Event{Kind: judge.Appeared, Key: key}); err != nil {
				return err
			}
		}
		delete(c.there, key)
	}
	for key, must := range c.there {
		if must && strings.HasPrefix(key, prefix) {
			if err := c.note(judge.Event{Kind: judge.Vanished, Key: key}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *child) list(ctx context.Context, prefix string) (keys []string, err error) {
	err = c.do(ctx, "list", prefix, func(ctx context.Context) error {
		keys, err = c.objects.Keys(ctx, prefix)
		return err
	})
	return keys, err
}

// Objects are what the children of a run put and delete. A request that has returned must
// show in those that follow.
type Objects interface {
	Put(ctx context.Context, key string, body []byte) error
	// Delete is no error if there is no such object.
	Delete(ctx context.Context, key string) error
	// Keys returns all keys with a prefix.
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// Witness is the child of a trial: all that it does under the lock is to append to the log
// that all children share. Each entry says when it was in.
type Witness struct {
	ID   string // unique in the trial
	Log  string // the path of the log
	Hold time.Duration
}

// WitnessSubcommand is the command of repolock that is a Witness. It takes the ID, the log and
// the hold as arguments.
const WitnessSubcommand = "torture-witness"

// beat is the interval of a witness's entries.
const beat = 20 * time.Millisecond

// Do appends an entry at its begin, at each beat and at its end. The last beat comes after the
// hold is over, so that a witness that was stopped meanwhile writes once more.
func (w Witness) Do() error {
	f, err := os.OpenFile(w.Log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnjudged, err)
	}
	defer f.Close()
	end := clock.System{}.Elapsed() + w.Hold
	note := func(e judge.Event) error {
		e.At, e.ID = clock.System{}.Elapsed(), w.ID
		return write(f, e)
	}
	err = note(judge.Event{Kind: judge.In, PID: os.Getpid(), Text: namespaces()})
	for err == nil {
		<-clock.System{}.After(beat)
		over := clock.System{}.Elapsed() >= end
		if err = note(judge.Event{Kind: judge.Beat}); over {
			break
		}
	}
	if err != nil {
		return err
	}
	return note(judge.Event{Kind: judge.Out})
}

// namespaces names those of this process on which its number and its clock depend.
func namespaces() string {
	pid, _ := os.Readlink("/proc/self/ns/pid")
	clocks, _ := os.Readlink("/proc/self/ns/time") // Linux 5.6 has it
	return strings.TrimSpace(pid + " " + clocks)
}
