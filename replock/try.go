package replock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// object is one of our lock objects, with what we know of its stored state.
type object struct {
	key  string
	etag string
	sent time.Duration // when the put of its present body was sent
	// twice: a put of it was sent again. So the first send can be applied even after the object was
	// deleted.
	twice   bool
	put     bool // a put of it was answered, and no look showed that another client has undone it
	maybe   bool // a put of it was sent, so it can be stored now or later
	listed  bool // the last look showed it
	renewed bool // the present refresh has already replaced it
}

// try is one run of the protocol with one flag, from the flag's first put until the lock is held or
// the flag is withdrawn.
type try struct {
	mode      Mode
	operation string
	id        string
	body      body
	flag      object // ground truth: only we ever write its key
	exclusive object // lock.exclusive
	place     string // in the queue: tickets with a later place are behind us
	polls     bool   // its looks are polls, and grant nothing

	sent     time.Duration // when the flag's first put was sent, which begins the lease
	deadline time.Duration
	st       storeTime
	dated    storeTime       // the flag's mod time, when it was first seen
	looked   bool            // whether it has looked
	seen     clock.Reading   // when the last look was sent
	passed   *entry          // the stale lock.exclusive that it has passed and left
	raised   pageTime        // of the answer to the flag's put
	first    pageTime        // of its first page
	page     pageTime        // of its last page
	trips    *trips          // shared by the tries of one acquire
	parent   context.Context // of the lock's context
	underway underway        // its puts that aren't answered
	fence    uint64          // fencing number, or 0
	refusals int             // 412 responses to puts of lock.exclusive since a listing last showed it
	// shown is when the last look that showed lock.exclusive as ours was sent, on the clock's
	// Elapsed. It is 0 if that look can't replace another one.
	shown time.Duration
	ownTries
}

// ownTries has the ids and the flags' keys of all tries for one lock, whether they are stored or
// not.
type ownTries struct{ ids, keys map[string]bool }

func nothingYet() ownTries { return ownTries{map[string]bool{}, map[string]bool{}} }

func (l *Locker) newTry(mode Mode, operation string, m ownTries) (*try, error) {
	id, err := l.newID()
	if err != nil {
		return nil, err
	}
	now := l.opts.Clock.Now()
	key := l.keys.flag(mode, now, id)
	at := place(key)
	if mode == Shared {
		at = lastPlace
	}
	m = ownTries{maps.Clone(m.ids), maps.Clone(m.keys)} // other goroutines may read the old ones
	m.ids[id], m.keys[key] = true, true
	return &try{
		mode: mode, operation: operation, id: id,
		flag:      object{key: key},
		exclusive: object{key: l.keys.exclusive()},
		place:     at,
		ownTries:  m,
		trips:     new(trips),
		body: body{
			Operation: operation, Holder: l.self.Holder(), AcquiredAt: now.UTC().Format(wireTime), IsShared: mode == Shared,
			ID: id, TTLSeconds: l.opts.TTL.Seconds(), State: StateAcquiring,
			Process: l.self, Version: l.opts.Version, Metadata: l.opts.Metadata,
		},
	}, nil
}

// owns reports whether a listed object is ours: by its key, or, for lock.exclusive, which other
// clients write too, by the ETag of our put.
func (t *try) owns(o store.Object) bool {
	if o.Key == t.exclusive.key {
		return t.exclusive.put && o.ETag != "" && o.ETag == t.exclusive.etag
	}
	return t.keys[o.Key]
}

// wrote reports whether an entry has the id of one of our tries.
func (t *try) wrote(e *entry) bool { return e.err == nil && t.ids[e.lease.ID] }

// noteExclusive updates t from a page that shows lock.exclusive.
func (t *try) noteExclusive(page store.Page) {
	for _, o := range page.Objects {
		if o.Key == t.exclusive.key {
			t.refusals = 0
			t.exclusive.listed = t.owns(o)
		}
	}
}

// claimed records that lock.exclusive has this try's body.
func (t *try) claimed(etag string) {
	t.exclusive.put, t.exclusive.maybe, t.exclusive.etag, t.exclusive.sent = true, true, etag, t.sent
}

// date begins the lease. The first put of the flag follows.
func (l *Locker) date(t *try) {
	t.sent = l.opts.Clock.Elapsed()
	t.deadline = t.sent + l.times.Deadline
	l.stamp(&t.body, t.st, t.sent)
}

// errLate: the look that would have granted the lock was answered after the deadline of the lease.
var errLate = unsure(errors.New("the store is too slow: acquiring the lock took longer than its lease"))

// late returns errLate, with the reason if the store wasn't just slow.
func (t *try) late() error {
	if t.refusals == 0 {
		return errLate
	}
	return fmt.Errorf("%w, and the store refused %d times to write %q with If-None-Match (412) although it listed no such object", errLate, t.refusals, t.exclusive.key)
}
