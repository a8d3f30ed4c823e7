package lockingtest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/locking"
)

var errBusy, errTTL = errors.New("busy"), errors.New("no ttl")

func check(key string) error {
	if strings.Contains(key, " ") {
		return locking.ErrKey
	}
	return nil
}

// table keeps the contract. Its clock is moved by the test.
type table struct {
	mu      sync.Mutex
	now     time.Duration
	locks   map[string]entry
	watched map[locking.Handle]chan struct{}
	shown   int // calls of Inspect
	forever bool
	bubble  bool // its clock also advances with the time
}

type entry struct {
	locking.Handle
	at, until time.Duration
}

func (e entry) revision() string { return e.at.String() }

func (b *table) time() time.Duration {
	if b.bubble {
		return b.now + time.Duration(time.Now().UnixNano())
	}
	return b.now
}

func (b *table) held(key string) (entry, bool) {
	e, ok := b.locks[key]
	return e, ok && (b.forever || b.time() < e.until)
}

func (b *table) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	if b.bubble {
		time.Sleep(time.Millisecond)
	}
	if err := check(key); err != nil || ttl <= 0 {
		return h, false, cmp.Or(err, errTTL)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, held := b.held(key); held || ctx.Err() != nil {
		return h, false, ctx.Err()
	}
	h = locking.NewHandle(key, ttl)
	b.put(h)
	return h, true, nil
}

func (b *table) put(h locking.Handle) {
	b.now++ // no two locks are acquired at the same time
	b.locks[h.Key()] = entry{h, b.time(), b.time() + h.TTL()}
}

func (b *table) Renew(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(h.Key())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !held || e.Handle != h {
		return locking.ErrLost
	}
	e.until = b.time() + h.TTL()
	b.locks[h.Key()] = e
	return nil
}

func (b *table) Release(_ context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, held := b.held(h.Key()); !held || e.Handle != h {
		return locking.ErrLost
	}
	delete(b.locks, h.Key())
	delete(b.watched, h)
	return nil
}

// Watch returns a channel that is closed when the lock is removed from outside.
func (b *table) Watch(h locking.Handle) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := make(chan struct{})
	if e, held := b.held(h.Key()); held && e.Handle == h {
		b.watched[h] = lost
	} else {
		close(lost)
	}
	return lost
}

func (b *table) Cleanup(context.Context) error { return nil }

func (b *table) Inspect(_ context.Context, key string) (*locking.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(key)
	if err := check(key); !held {
		return nil, err
	}
	return &locking.Info{Key: key, Acquired: time.Unix(0, int64(e.at)), Revision: e.revision()}, nil
}

func (b *table) Break(_ context.Context, seen *locking.Info, stale bool) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(seen.Key)
	if err := check(seen.Key); err != nil {
		return false, err
	}
	if !held || stale || seen.Revision != e.revision() {
		return false, nil
	}
	b.drop(seen.Key)
	return true, nil
}

// Resume also restores a lock that has expired, if no other holder has had it.
func (b *table) Resume(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	if e, ok := b.locks[h.Key()]; ok && e.Handle == h && ctx.Err() == nil {
		e.until = b.time() + h.TTL()
		b.locks[h.Key()] = e
	}
	b.mu.Unlock()
	return b.Renew(ctx, h)
}

func (b *table) Examine(context.Context) ([]locking.Finding, error) {
	return []locking.Finding{{What: "memory", Found: "in one process", Severity: locking.Risky, Advice: "don't stop it"}}, nil
}

// remove deletes the lock of a key with any token.
func (b *table) remove(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(key)
}

func (b *table) drop(key string) {
	delete(b.locks, key)
	for h, c := range b.watched {
		if h.Key() == key {
			close(c)
			delete(b.watched, h)
		}
	}
}

func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}

// buggy is a client that breaks the contract, in one way.
type buggy struct {
	*table
	bug  string
	last locking.Handle  // that it has acquired
	seen *locking.Info   // at its last attempt
	ctx  context.Context // of its last TryLock
	gone sync.Map        // handles that are released, or that "forgets" has forgotten
	mine sync.Map        // handles that this client has acquired, and not released
}

func (b *buggy) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	switch b.bug {
	case "closed": // it acquires nothing
		return h, false, nil
	case "any key": // it replaces what it can't have in a key
		key = strings.ReplaceAll(key, " ", "_")
	case "one key": // it takes any key for the same
		key = "a"
	case "any ttl": // it acquires a lock that is over already
		ttl = max(ttl, 1)
	case "no context": // it doesn't look at its context
		ctx = context.Background()
	case "short": // it counts half of the ttl
		ttl /= 2
	case "steals": // it takes any lock
		b.remove(key)
	case "reentrant": // it acquires a lock again that this client holds
		if b.last.Key() == key && b.table.Renew(ctx, b.last) == nil {
			return b.last, true, nil
		}
	case "racy", "racy release":
		return b.race(ctx, key, ttl)
	case "patient": // it acquires only what was released
		b.mu.Lock()
		_, there := b.locks[key]
		b.mu.Unlock()
		if there {
			return h, false, ctx.Err()
		}
	}
	h, ok, err = b.table.TryLock(ctx, key, ttl)
	if b.bug == "fails" && !ok && err == nil { // it returns an error if another holder has the lock
		err = errBusy
	}
	if !ok {
		return h, ok, err
	}
	switch b.bug {
	case "one token": // it returns the same handle each time
		if b.last.Key() == key && b.last.TTL() == ttl {
			h = b.last
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.put(h)
	case "leaves": // it doesn't take down what it has stored when its context ends
		if ttl == time.Minute { // that of this rule
			<-ctx.Done()
			return locking.Handle{}, false, ctx.Err()
		}
	case "tied": // its locks end with the contexts that they were acquired with
		b.ctx = ctx
	}
	b.last = h
	b.mine.Store(h, true)
	return h, true, nil
}

// race acquires a lock beside another client that does so.
func (b *buggy) race(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	now, err := b.table.Inspect(ctx, key)
	if err != nil || ctx.Err() != nil {
		return h, false, cmp.Or(err, ctx.Err())
	}
	if b.bug == "racy release" { // it takes what it can't acquire for a leftover, once its holder has let go
		if b.seen != nil && now != nil && *now != *b.seen {
			b.remove(key) // of a newer holder
		}
		b.seen = now
		return b.table.TryLock(ctx, key, ttl)
	}
	if now != nil {
		return h, false, nil
	}
	dawdle()
	if h, ok, err := b.table.TryLock(ctx, key, ttl); ok || err != nil { // it looks first, and then writes
		return h, ok, err
	}
	h = locking.NewHandle(key, ttl)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(h)
	return h, true, nil
}

// there returns the handle that the lock of a key has.
func (b *buggy) there(key string) locking.Handle {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.locks[key].Handle
}

func (b *buggy) Renew(ctx context.Context, h locking.Handle) error {
	switch b.bug {
	case "renews any": // it doesn't look at the token
		h = b.there(h.Key())
	case "gives up": // it takes the end of its context for the loss of the lock
		if ctx.Err() != nil {
			return locking.ErrLost
		}
	case "remembers": // it doesn't look at the storage
		if _, mine := b.mine.Load(h); mine {
			return ctx.Err()
		}
	case "restores": // it puts a lock again that isn't there
		b.putAgain(h)
	case "renames the next": // it writes, and looks then
		b.mu.Lock()
		if e, held := b.held(h.Key()); held && e.Handle != h {
			e.at++
			b.locks[h.Key()] = e
		}
		b.mu.Unlock()
	case "tied":
		if b.last == h && b.ctx != nil && b.ctx.Err() != nil && ctx.Err() == nil {
			b.remove(h.Key())
		}
	case "no extension": // it only looks
		b.mu.Lock()
		defer b.mu.Unlock()
		if e, held := b.held(h.Key()); held && e.Handle == h {
			return ctx.Err()
		}
		return locking.ErrLost
	case "revives": // it acquires a lock again that has expired
		b.mu.Lock()
		if _, held := b.held(h.Key()); !held && h.TTL() > 0 && h.TTL() <= time.Minute {
			b.put(h)
		}
		b.mu.Unlock()
	}
	return b.table.Renew(ctx, h)
}

// putAgain puts a lock of this client again if there is none.
func (b *buggy) putAgain(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, there := b.locks[h.Key()]
	if _, mine := b.mine.Load(h); mine && !there {
		b.put(h)
	}
}

// Watch returns a channel that nothing closes, of "hears nothing", and of "watches the lost" if the lock is lost.
func (b *buggy) Watch(h locking.Handle) <-chan struct{} {
	if b.bug == "hears nothing" || b.bug == "watches the lost" && b.there(h.Key()) != h {
		return nil
	}
	return b.table.Watch(h)
}

func (b *buggy) Release(ctx context.Context, h locking.Handle) error {
	_, mine := b.mine.LoadAndDelete(h)
	switch b.bug {
	case "trusts its release": // a lock that it hasn't released must be there
		if mine {
			_ = b.table.Release(ctx, h)
			return nil
		}
	case "keeps": // it leaves the lock to its ttl
		return b.table.Renew(ctx, h)
	case "releases twice": // it takes a lock that it has released for released
		if _, gone := b.gone.Load(h); gone {
			return nil
		}
		err := b.table.Release(ctx, h)
		if err == nil {
			b.gone.Store(h, true)
		}
		return err
	case "zero": // it takes a zero handle for nothing to do
		if h == (locking.Handle{}) {
			return nil
		}
	case "deletes": // it doesn't look at the token
		h = b.there(h.Key())
	case "deletes silently": // it returns the right error, and has deleted the lock of another holder
		defer b.remove(h.Key())
	case "gives up release": // it takes the end of its context for the loss of the lock
		if ctx.Err() != nil {
			return locking.ErrLost
		}
	case "forgets": // it forgets a handle before its lock is released
		if _, gone := b.gone.LoadOrStore(h, true); gone {
			return locking.ErrLost
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return b.table.Release(ctx, h)
}

func (b *buggy) Cleanup(ctx context.Context) error {
	if b.bug == "sweeps all" { // it takes every lock for an expired one
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.locks)
	}
	return b.table.Cleanup(ctx)
}

func (b *buggy) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if b.bug == "shows" { // expired and released locks too
		return &locking.Info{Key: "a", Acquired: time.Unix(1, 0), Revision: "1"}, nil
	}
	info, err := b.table.Inspect(ctx, key)
	if info == nil {
		if b.bug == "inspects any key" {
			err = nil
		}
		return nil, err
	}
	switch b.bug {
	case "no revision":
		info.Revision = ""
	case "one revision":
		info.Revision = "1"
	case "shaky revision":
		b.mu.Lock()
		defer b.mu.Unlock()
		b.shown++
		info.Revision = fmt.Sprint(b.shown)
	case "shows the token":
		info.Revision = "token " + b.there(key).Token()
	}
	return info, err
}

func (b *buggy) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	switch now, _ := b.table.Inspect(ctx, seen.Key); b.bug {
	case "breaks any key":
		seen.Key = strings.ReplaceAll(seen.Key, " ", "_")
	case "breaks any": // it removes what is there
		if !stale {
			b.remove(seen.Key)
		}
		return !stale, nil
	case "breaks by time", "breaks by key": // it compares other things than the revision, or too many
		if now == nil || !now.Acquired.Equal(seen.Acquired) {
			return false, nil
		}
		if b.bug == "breaks by time" {
			seen = now
		}
	}
	return b.table.Break(ctx, seen, stale)
}

func (b *buggy) Resume(ctx context.Context, h locking.Handle) error {
	if ctx.Err() == nil {
		switch b.bug {
		case "resumes nothing":
			return locking.ErrLost
		case "resumes gone": // it puts a lock again that isn't there
			b.putAgain(h)
		case "resumes any", "resumes its own": // also a lock that isn't another holder's now
			b.mu.Lock()
			defer b.mu.Unlock()
			e, held := b.held(h.Key())
			if h.Key() == "" || b.bug == "resumes its own" && held && e.Handle != h {
				return locking.ErrLost
			}
			b.put(h)
			return nil
		}
	}
	return b.table.Resume(ctx, h)
}

func (b *buggy) Examine(ctx context.Context) ([]locking.Finding, error) {
	switch b.bug {
	case "finds nothing":
		return nil, nil
	case "finds without word":
		return []locking.Finding{{What: "x", Found: "y", Severity: locking.Bad}}, nil
	case "finds and writes":
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.locks)
	}
	return b.table.Examine(ctx)
}
