// Package cloudsticlock is the repository lock of the wire format as it was first published, without later
// corrections. It is a fixture: our protocol passes the tests that find the holes of this one. Don't use it.
package cloudsticlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

const (
	exclusiveKey = "index/lock.exclusive"
	sharedPrefix = "index/lock.shared/"
	ttl          = time.Minute
	refreshRate  = 30 * time.Second
	maxFailures  = 3
)

// ErrHeld is returned when the lock isn't granted.
var ErrHeld = errors.New("repository is locked")

type payload struct {
	Operation  string `json:"operation"`
	Holder     string `json:"holder"`
	AcquiredAt string `json:"acquired_at"`
	ExpiresAt  string `json:"expires_at"`
	IsShared   bool   `json:"is_shared,omitempty"`
}

// Locker is one client.
type Locker struct {
	Store  store.Store
	Clock  clock.Clock
	Holder string
}

// Lock is a lock that was granted.
type Lock struct {
	l    *Locker
	key  string
	p    payload
	stop context.CancelFunc
	done chan struct{}
}

// Exclusive checks lock.exclusive and the shared locks, writes, and reads its own body back.
func (l *Locker) Exclusive(ctx context.Context, operation string) (*Lock, error) {
	if l.live(ctx, exclusiveKey) || l.anyShared(ctx) {
		return nil, ErrHeld
	}
	p := l.payload(operation, false)
	if err := l.write(ctx, exclusiveKey, p); err != nil {
		return nil, err
	}
	if now, err := l.read(ctx, exclusiveKey); err != nil || now.Holder != p.Holder || now.AcquiredAt != p.AcquiredAt {
		return nil, ErrHeld
	}
	return l.hold(exclusiveKey, p), nil
}

// Shared checks lock.exclusive, writes, and checks again.
func (l *Locker) Shared(ctx context.Context, operation string) (*Lock, error) {
	if l.live(ctx, exclusiveKey) {
		return nil, ErrHeld
	}
	p := l.payload(operation, true)
	key := sharedPrefix + p.AcquiredAt + "-" + strings.ReplaceAll(l.Holder, " ", "")
	if err := l.write(ctx, key, p); err != nil {
		return nil, err
	}
	if l.live(ctx, exclusiveKey) {
		_ = l.Store.Delete(ctx, key)
		return nil, ErrHeld
	}
	return l.hold(key, p), nil
}

func (l *Locker) payload(operation string, shared bool) payload {
	now := l.Clock.Now()
	return payload{operation, l.Holder, now.Format(time.RFC3339Nano), now.Add(ttl).Format(time.RFC3339Nano), shared}
}

func (l *Locker) write(ctx context.Context, key string, p payload) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = l.Store.Put(ctx, key, raw, store.PutOptions{})
	return err
}

func (l *Locker) read(ctx context.Context, key string) (p payload, err error) {
	raw, _, err := l.Store.Get(ctx, key, 1<<20)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(raw, &p)
}

// live takes every error for "no lock".
func (l *Locker) live(ctx context.Context, key string) bool {
	p, err := l.read(ctx, key)
	if err != nil {
		return false
	}
	expires, err := time.Parse(time.RFC3339Nano, p.ExpiresAt)
	return err == nil && l.Clock.Now().Before(expires)
}

func (l *Locker) anyShared(ctx context.Context) bool {
	page, err := l.Store.List(ctx, sharedPrefix, "")
	if err != nil {
		return false
	}
	for _, o := range page.Objects {
		if l.live(ctx, o.Key) {
			return true
		}
	}
	return false
}

func (l *Locker) hold(key string, p payload) *Lock {
	ctx, stop := context.WithCancel(context.Background())
	k := &Lock{l: l, key: key, p: p, stop: stop, done: make(chan struct{})}
	go k.refresh(ctx)
	return k
}

// refresh rewrites the lock every 30 s, even if another client has replaced or deleted it. After three
// failures it stops, and doesn't notify the holder.
func (k *Lock) refresh(ctx context.Context) {
	defer close(k.done)
	for failures := 0; failures < maxFailures; {
		if clock.Sleep(ctx, k.l.Clock, refreshRate) != nil {
			return
		}
		k.p.ExpiresAt = k.l.Clock.Now().Add(ttl).Format(time.RFC3339Nano)
		if err := k.l.write(ctx, k.key, k.p); err != nil {
			failures++
		} else {
			failures = 0
		}
	}
}

// Key is the key of the lock's object.
func (k *Lock) Key() string { return k.key }

// Held reports whether the operation believes that it holds the lock: nothing shows it a
// loss before Release.
func (k *Lock) Held() bool { return true }

// Release deletes the lock.
func (k *Lock) Release(ctx context.Context) error {
	k.stop()
	<-k.done
	if err := k.l.Store.Delete(ctx, k.key); err != nil {
		return fmt.Errorf("releasing: %w", err)
	}
	return nil
}
