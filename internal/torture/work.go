package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
)

// Work is the work of a child under its lock. A backup, which has the shared lock, puts objects. A prune, which has the
// exclusive lock, also deletes existing objects. The child logs each request, and each object that another process has
// put or deleted.
type Work struct {
	ID   string        // unique in the run
	Mode judge.Mode    // mode of its lock
	Data string        // prefix of all objects; it ends in a slash
	Hold time.Duration // how long the work takes, besides its requests
	Wait time.Duration // how long the client waits for the lock; 0: it doesn't wait
}

// ErrUnjudged is returned when there is no verdict because a log can't be written or understood, or
// because a process hangs or has crashed.
var ErrUnjudged error = fault.Unjudged

const (
	// putInterval is the pause between two puts of a child.
	putInterval = 500 * time.Millisecond
	// requestTimeout bounds a request of a child.
	requestTimeout = 20 * time.Second
	// maxDeletes is the number of objects that one prune deletes at most.
	maxDeletes = 20
	// maxError is the length to which an error is cut. It keeps a line of the log below 4 KiB. A pipe receives such a
	// line as a whole or not at all, even if the child is killed.
	maxError = 300
)

// Do does the work on the objects that open returns, and writes each judge.Event to log as a line. It returns the error
// of the first request that fails.
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

type child struct {
	Work
	log     io.Writer
	objects Objects
	own     string // prefix of its own objects
	// there has the keys that the child has seen or put. The value is true if the object must still exist, and false
	// after a delete.
	there map[string]bool
}

func (c *child) note(e judge.Event) error {
	e.At, e.ID = clock.System{}.Elapsed(), c.ID
	return judge.Write(c.log, e)
}

// do sends a request. It logs an entry before the request and another after it.
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

// put puts an object every putInterval until the end, and at least one.
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

// compare logs the changes that the child didn't make. A prune must be alone, so it compares all objects. A backup
// compares only its own objects, because other backups may write at the same time.
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

// Objects are the objects of a store. After a request has returned, all later requests must see its effect.
type Objects interface {
	// Put writes an object.
	Put(ctx context.Context, key string, body []byte) error
	// Delete succeeds if there is no such object.
	Delete(ctx context.Context, key string) error
	// Keys returns all keys with the prefix.
	Keys(ctx context.Context, prefix string) ([]string, error)
}
