package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// These are protocols with known holes. The simulator must find the holes.

// asRestic is the protocol of restic 0.14. A client writes a file of its own,
// and looks for others before that and 200 ms after. It refreshes the file every five minutes,
// whatever happened to it. A file is stale after 30 minutes by the reader's clock; then
// "restic unlock", which careful people run first, removes it.
type asRestic struct{}

const (
	resticDir     = "locks/"
	resticRefresh = 5 * time.Minute
	resticStale   = 30 * time.Minute
	resticWait    = 200 * time.Millisecond
)

func (asRestic) Join(s store.Store, m Member) Participant {
	return &resticClient{s, m.Clock, m.Rand, m.Name}
}

type resticClient struct {
	store store.Store
	clock clock.Clock
	rand  io.Reader
	name  string
}

type resticBody struct {
	Time      time.Time `json:"time"`
	Exclusive bool      `json:"exclusive"`
	Holder    string    `json:"hostname"`
}

func (c *resticClient) Lock(ctx context.Context, mode replock.Mode, _ string, _ time.Duration) (Held, error) {
	if err := c.Break(ctx, true); err != nil {
		return nil, err
	}
	exclusive := mode == replock.Exclusive
	if err := c.free(ctx, exclusive, ""); err != nil {
		return nil, err
	}
	key, err := c.write(ctx, exclusive)
	if err != nil {
		return nil, err
	}
	if err = clock.Sleep(ctx, c.clock, resticWait); err == nil {
		err = c.free(ctx, exclusive, key)
	}
	if err != nil {
		_ = c.store.Delete(ctx, key)
		return nil, err
	}
	rctx, stop := context.WithCancel(context.Background())
	k := &resticLock{c: c, exclusive: exclusive, stop: stop, done: make(chan struct{})}
	k.key.Store(&key)
	go k.refresh(rctx)
	return k, nil
}

func (c *resticClient) write(ctx context.Context, exclusive bool) (string, error) {
	var id [16]byte
	if _, err := c.rand.Read(id[:]); err != nil {
		return "", err
	}
	raw, err := json.Marshal(resticBody{c.clock.Now(), exclusive, c.name})
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("%s%x", resticDir, id)
	_, err = c.store.Put(ctx, key, raw, store.PutOptions{})
	return key, err
}

// each calls f for every lock.
func (c *resticClient) each(ctx context.Context, f func(key string, b resticBody) error) error {
	for cursor := ""; ; {
		page, err := c.store.List(ctx, resticDir, cursor)
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			raw, _, err := c.store.Get(ctx, o.Key, 1<<20)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			var b resticBody
			if err == nil {
				err = json.Unmarshal(raw, &b)
			}
			if err == nil {
				err = f(o.Key, b)
			}
			if err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

func (c *resticClient) free(ctx context.Context, exclusive bool, own string) error {
	return c.each(ctx, func(key string, b resticBody) error {
		if key != own && (exclusive || b.Exclusive) {
			return replock.ErrHeld
		}
		return nil
	})
}

func (c *resticClient) Break(ctx context.Context, stale bool) error {
	return c.each(ctx, func(key string, b resticBody) error {
		if stale && c.clock.Now().Sub(b.Time) < resticStale {
			return nil
		}
		return c.store.Delete(ctx, key)
	})
}

type resticLock struct {
	c         *resticClient
	key       atomic.Pointer[string]
	exclusive bool
	stop      context.CancelFunc
	done      chan struct{}
}

// refresh writes a new file and removes the one before.
func (k *resticLock) refresh(ctx context.Context) {
	defer close(k.done)
	for clock.Sleep(ctx, k.c.clock, resticRefresh) == nil {
		if key, err := k.c.write(ctx, k.exclusive); err == nil {
			_ = k.c.store.Delete(ctx, k.Key())
			k.key.Store(&key)
		}
	}
}

func (k *resticLock) Key() string                          { return *k.key.Load() }
func (k *resticLock) ID() string                           { return "" }
func (k *resticLock) Context() context.Context             { return context.Background() }
func (k *resticLock) Deadline() time.Duration              { return never }
func (k *resticLock) Seen() replock.Reading                { return replock.Reading{} }
func (k *resticLock) Renew(context.Context) error          { return nil }
func (k *resticLock) Check(context.Context) error          { return nil }
func (k *resticLock) Resume(context.Context) (Held, error) { return nil, errNoResume }

func (k *resticLock) Release(ctx context.Context) error {
	k.stop()
	<-k.done
	return k.c.store.Delete(ctx, k.Key())
}
