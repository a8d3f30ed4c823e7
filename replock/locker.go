package replock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/serial"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// Locker acquires locks in one repository. Its methods can be called concurrently. It keeps no connection or file open,
// so it has no Close.
type Locker struct {
	store      store.Store
	opts       Options
	keys       wire.Keys
	times      refresh.Schedule
	self       identity.Process
	conditions conditions
	neighbours neighbours
	reached    atomic.Bool // the store has carried out a request
	randMu     sync.Mutex  // guards rand
	rand       io.Reader
	earlier    func(most time.Duration) time.Duration
	pace       pace
	observed   bool         // there is a logger or an observer
	events     serial.Queue // queue for the logger and the observer
}

// New returns a Locker for the repository in a store. It makes no request. It returns an error if
// the store is nil, or if an option is out of bounds.
func New(s store.Store, opts Options) (*Locker, error) {
	if s == nil {
		return nil, errors.New("no store: open one first")
	}
	observed := opts.Logger != nil || opts.Observe != nil
	if err := opts.fill(); err != nil {
		return nil, err
	}
	l := &Locker{
		store: store.Finite(s),
		opts:  opts,
		keys:  wire.Keys{Prefix: opts.Prefix},
		times: refresh.ForTTL(opts.TTL),
		rand:  rand.Reader,
		pace:  ownPace,

		observed: observed,
	}
	if p, ok := opts.Clock.(process); ok {
		l.rand, l.self = p.Process()
	} else {
		l.self = identity.Self()
	}
	if err := store.CheckKey(l.keys.Exclusive()); err != nil {
		return nil, fmt.Errorf("prefix %q: %w", opts.Prefix, err)
	}
	l.earlier = l.early
	l.neighbours.known = opts.Beside
	l.conditions.init(s.Properties())
	return l, nil
}

// newID returns 128 random bits in hex. The clocks are mixed in, because two copies of a machine can continue with the
// same random numbers.
func (l *Locker) newID() (string, error) {
	var b [16]byte
	if err := l.random(b[:]); err != nil {
		return "", fmt.Errorf("no randomness for a lock's id: %w", err)
	}
	mixed := fmt.Appendf(b[:], "%d %d", l.opts.Clock.Now().UnixNano(), l.opts.Clock.Elapsed())
	id := sha256.Sum256(mixed)
	return hex.EncodeToString(id[:16]), nil
}

// nonce returns 64 random bits in hex, for one put. It returns an empty text if there is no randomness: then the times
// in the body distinguish it.
func (l *Locker) nonce() string {
	var b [8]byte
	if err := l.random(b[:]); err != nil {
		return ""
	}
	return hex.EncodeToString(b[:])
}

// jitter returns a random time from d/2 to 3d/2, so that competing clients don't act at the same time.
func (l *Locker) jitter(d time.Duration) time.Duration {
	var b [8]byte
	if err := l.random(b[:]); err != nil {
		return d
	}
	return d/2 + time.Duration(binary.LittleEndian.Uint64(b[:])%uint64(d+1))
}

// early returns a random time from 0 to most, so that holders don't refresh at the same time.
func (l *Locker) early(most time.Duration) time.Duration { return l.jitter(most) - most/2 }

func (l *Locker) random(b []byte) error {
	l.randMu.Lock()
	defer l.randMu.Unlock()
	_, err := io.ReadFull(l.rand, b)
	return err
}

// judges returns the judge for locks that other clients own.
func (l *Locker) judges() verdict.Judge {
	p := l.store.Properties()
	return verdict.Judge{Self: l.self, Wall: l.opts.Clock.Now, StoreClock: p.StoreClock, MachineClock: p.MachineClock}
}

// info returns the Info of an entry.
func (l *Locker) info(e *verdict.Entry, st verdict.StoreTime, now time.Duration) Info {
	b := e.Lease.Body
	i := Info{
		Mode: Exclusive, Keys: []string{e.Key}, ID: b.ID, Operation: b.Operation, Holder: b.Holder, State: State(b.State),
		User: b.User, Version: b.Version, Metadata: b.Metadata, AcquiredID: b.AcquiredID,
		Acquired: e.Lease.Acquired, Expires: e.Lease.Refreshed.Add(e.Lease.TTL), TTL: e.Lease.TTL,
		ModTime: e.ModTime, Verdict: Verdict(e.Verdict), Why: e.Why, Body: e.Raw,
		ProcessGone: l.self.Gone(b.Process),
		stored:      e.Object,
	}
	if e.Shared() {
		i.Mode = Shared
	}
	if i.TTL == 0 {
		i.TTL = wire.ForeignTTL
	}
	if _, ok := e.Age(st, now); ok {
		i.Age, i.StoreClock = clock.Between(e.ModTime, st.When(now)), true
		i.Left = i.TTL - i.Age
	} else if !e.Lease.Refreshed.IsZero() {
		i.Age = clock.Between(e.Lease.Refreshed, l.opts.Clock.Now())
		i.Left = i.TTL - i.Age
	}
	return i
}

// infos returns the Infos of entries of a look.
func (l *Locker) infos(entries []*verdict.Entry, f verdict.Findings) []Info {
	var infos []Info
	for _, e := range entries {
		infos = append(infos, l.info(e, f.St, f.Now))
	}
	return merge(infos)
}

// tell queues an event for the logger and the observer, and doesn't wait for them. Even if one of them blocks, the lock
// must be refreshed, and must be lost at its deadline.
func (l *Locker) tell(e Event) {
	if !l.observed {
		return
	}
	told := e // only a copy of an event that is delivered goes to the heap
	told.Time, told.Name = l.opts.Clock.Now(), l.opts.Name
	l.events.Add(func() { l.deliver(told) })
}

// Flush waits until the logger and the observer have received all events so far, or until ctx ends.
// It makes no request.
func (l *Locker) Flush(ctx context.Context) { l.events.Flush(ctx) }

// deliver logs an event, and calls the observer with it.
func (l *Locker) deliver(e Event) {
	level, ok := levels[e.Kind]
	if !ok {
		level = slog.LevelDebug
	}
	if l.opts.Logger.Enabled(context.Background(), level) {
		l.log(level, e)
	}
	if l.opts.Observe != nil {
		l.opts.Observe(e)
	}
}

// log logs an event.
func (l *Locker) log(level slog.Level, e Event) {
	attrs := []any{"mode", e.Mode, "operation", text.Brief(e.Operation), "id", e.ID, "key", e.Key}
	add := func(key string, known bool, value any) {
		if known {
			attrs = append(attrs, key, value)
		}
	}
	add("name", e.Name != "", e.Name)
	for _, h := range e.Holders {
		add("holder", true, h.String())
	}
	add("failures", e.Failures > 0, e.Failures)
	add("done", e.Done > 0, e.Done)
	add("total", e.Total > 0, e.Total)
	add("waited", e.Waited > 0, e.Waited)
	add("held", e.Held > 0, e.Held)
	add("left", e.Left > 0, e.Left)
	add("err", e.Err != nil, e.Err)
	l.opts.Logger.Log(context.Background(), level, "lock "+string(e.Kind), attrs...)
}
