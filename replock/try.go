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

// object is one of our lock objects, as far as we know how it is stored.
type object struct {
	key  string
	etag string
	sent time.Duration // when the put was sent that gave it its present body
	// twice: a put of it was sent again, so the first can be applied after the second was
	// deleted.
	twice   bool
	put     bool // a put of it was answered, and no other client was seen to undo it
	maybe   bool // it can be stored, now or later, because a put of it was sent
	listed  bool // the last look saw it
	renewed bool // the present refresh has replaced it already
}

// try is one run of the protocol with one flag, from the flag's first put until the lock is held
// or the flag is withdrawn.
type try struct {
	mode      Mode
	operation string
	id        string
	body      body
	flag      object // the ground truth: a key that only we ever write
	exclusive object // lock.exclusive
	place     string // in the queue: a ticket with a later one is behind us
	polls     bool   // its looks only find out whether another try is worthwhile
	returns   bool   // its looks are of a lock that is resumed or reassured: see lookAgain

	sent     time.Duration // of the flag's first put, from which the lease is dated
	deadline time.Duration
	st       storeTime
	dated    storeTime       // by the flag's mod time, from when that was seen first
	looked   bool            // at least once
	seen     clock.Reading   // when the last look was sent
	passed   *entry          // the stale lock.exclusive that is left in its place
	raised   pageTime        // by the answer to the flag's put
	first    pageTime        // by its first page
	page     pageTime        // by its last page
	trips    *trips          // of the acquire that it belongs to
	parent   context.Context // of the lock's context
	underway underway        // puts
	fence    uint64          // its fencing number, or 0
	refusals int             // to write lock.exclusive because it is there, since a look listed it
	// shown is when the last look was sent that showed lock.exclusive as ours, on the clock's
	// Elapsed, or 0 if it can't spare another look.
	shown time.Duration
	ownTries
}

// ownTries holds the ids and the flags' keys of all tries for one lock, stored or not.
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
	m = ownTries{maps.Clone(m.ids), maps.Clone(m.keys)} // other goroutines can be reading them
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

// owns reports whether a listed object is ours: by its key, or, if it is lock.exclusive, which
// other clients write too, by the ETag of our put.
func (t *try) owns(o store.Object) bool {
	if o.Key == t.exclusive.key {
		return t.exclusive.put && o.ETag != "" && o.ETag == t.exclusive.etag
	}
	return t.keys[o.Key]
}

// wrote reports whether an entry carries the id of one of our tries.
func (t *try) wrote(e *entry) bool { return e.err == nil && t.ids[e.lease.ID] }

// noteExclusive notes what a page shows of lock.exclusive.
func (t *try) noteExclusive(page store.Page) {
	for _, o := range page.Objects {
		if o.Key == t.exclusive.key {
			t.refusals = 0
			t.exclusive.listed = t.owns(o)
		}
	}
}

// claimed notes that lock.exclusive has this try's body.
func (t *try) claimed(etag string) {
	t.exclusive.put, t.exclusive.maybe, t.exclusive.etag, t.exclusive.sent = true, true, etag, t.sent
}

// date begins the lease: the first put of the flag is about to be sent.
func (l *Locker) date(t *try) {
	t.sent = l.opts.Clock.Elapsed()
	t.deadline = t.sent + l.times.Deadline
	l.stamp(&t.body, t.st, t.sent)
}

// errLate: the answer that would have given us the lock came after the deadline of the lease.
var errLate = unsure(errors.New("the store is too slow: taking the lock took longer than its lease"))

// late returns errLate, with the reason if it was not a slow store.
func (t *try) late() error {
	if t.refusals == 0 {
		return errLate
	}
	return fmt.Errorf("%w, in which it refused %d times to write %q with If-None-Match (412), and listed no such object", errLate, t.refusals, t.exclusive.key)
}
