package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/history"
	"github.com/repolock/repolock/store"
)

// Work is what a child does under its lock: as a backup it puts objects, as a prune
// it deletes what is there as well. All of it, and what it sees others do, goes into
// its log.
type Work struct {
	// ID is no other's of the run.
	ID string
	// Mode of the lock that it runs under.
	Mode history.Mode
	// Data is the prefix of all that is put, and ends in a slash.
	Data string
	// Hold is how long it takes, if requests take no time.
	Hold time.Duration
}

// ErrUnjudged is a run of which nothing can be said: its log can't be written, or
// can't be understood, or a process hangs or broke down.
var ErrUnjudged = errors.New("whether there was a violation isn't known")

const (
	// beat is how often a child writes.
	beat = 500 * time.Millisecond
	// patience is how long a request of a child may take.
	patience = 20 * time.Second
	// maxDeletes is how many objects one prune deletes.
	maxDeletes = 20
	// maxError is where an error is cut: a line of less than 4 KiB goes into a pipe
	// whole, or, if its writer is killed, not at all.
	maxError = 300
)

// Do does the work in the store that open gives, and writes its log, of which each
// line is a history.Event. It ends at the first request that fails, with its error.
func (w Work) Do(ctx context.Context, open func(context.Context) (store.Store, error), log io.Writer) error {
	c := child{Work: w, log: json.NewEncoder(log), mine: w.Data + w.ID + "/", there: map[string]bool{}}
	err := c.note(history.Event{Kind: history.In})
	if err != nil {
		return err
	}
	if c.store, err = open(ctx); err != nil {
		return err
	}
	end := clock.System{}.Elapsed() + w.Hold
	if w.Mode == history.Exclusive {
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
	return c.note(history.Event{Kind: history.Out})
}

// child is one that does its work.
type child struct {
	Work
	store store.Store
	log   *json.Encoder
	mine  string // prefix of its own objects
	// there is what must be there, if nobody else writes.
	there map[string]bool
}

func (c *child) note(e history.Event) error {
	e.At, e.ID = clock.System{}.Elapsed(), c.ID
	if err := c.log.Encode(e); err != nil {
		return fmt.Errorf("%w: the log can't be written: %w", ErrUnjudged, err)
	}
	return nil
}

// do notes a request before it is sent, and what became of it.
func (c *child) do(ctx context.Context, op, key string, request func(context.Context) error) error {
	if err := c.note(history.Event{Kind: history.Call, Op: op, Key: key}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := request(ctx)
	returned := history.Event{Kind: history.Return}
	if err != nil {
		returned.Error = fmt.Sprintf("%.*s", maxError, err.Error())
	}
	return errors.Join(c.note(returned), err)
}

// prune deletes what is there.
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
		if err := c.do(ctx, "delete", key, func(ctx context.Context) error { return c.store.Delete(ctx, key) }); err != nil {
			return err
		}
	}
	return nil
}

// put puts an object now and then until the end, at least one.
func (c *child) put(ctx context.Context, end time.Duration) error {
	for n := 1; ; n++ {
		key := fmt.Sprint(c.mine, n)
		err := c.do(ctx, "put", key, func(ctx context.Context) error {
			_, err := c.store.Put(ctx, key, []byte(c.ID), store.PutOptions{})
			return err
		})
		if err != nil {
			return err
		}
		c.there[key] = true
		left := end - clock.System{}.Elapsed()
		if left <= 0 {
			return nil
		}
		if err := clock.Sleep(ctx, clock.System{}, min(left, beat)); err != nil {
			return err
		}
	}
}

// compare looks for what isn't its own doing: a prune at all objects, a backup, beside
// which others write, at its own.
func (c *child) compare(ctx context.Context) error {
	prefix := c.mine
	if c.Mode == history.Exclusive {
		prefix = c.Data
	}
	keys, err := c.list(ctx, prefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !c.there[key] {
			if err := c.note(history.Event{Kind: history.Appeared, Key: key}); err != nil {
				return err
			}
		}
		delete(c.there, key)
	}
	for key, must := range c.there {
		if must && strings.HasPrefix(key, prefix) {
			if err := c.note(history.Event{Kind: history.Vanished, Key: key}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *child) list(ctx context.Context, prefix string) (keys []string, err error) {
	err = c.do(ctx, "list", prefix, func(ctx context.Context) error {
		keys, err = list(ctx, c.store, prefix)
		return err
	})
	return keys, err
}

// list gives all keys with a prefix.
func list(ctx context.Context, s store.Store, prefix string) (keys []string, err error) {
	s = store.Finite(s)
	for cursor := ""; ; {
		page, err := s.List(ctx, prefix, cursor)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if cursor = page.Next; cursor == "" {
			return keys, nil
		}
	}
}
