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
	put     bool // a put of it was answered, and it isn't known to be gone
	maybe   bool // a put of it was sent, so it can be stored now or later
	renewed bool // the present refresh has already replaced it
}

// attempt is one run of the protocol with one flag, from the flag's first put until the lock is held
// or the flag is withdrawn. A ticket is an attempt without a pointer. Requests that write or delete
// change its own fields, and looks change its sight.
type attempt struct {
	mode      Mode
	operation string
	id        string
	body      body
	place     string          // in the queue: tickets with a later place are behind us
	parent    context.Context // of the lock's context
	trips     *trips          // shared by the attempts of one acquire
	ownAttempts

	sent        time.Duration // when the flag's first put was sent, which begins the lease
	deadline    time.Duration
	flag        object   // ground truth: only we ever write its key
	pointer     object   // lock.exclusive
	raised      pageTime // of the answer to the flag's put
	underway    underway // its puts that aren't answered
	refusals    int      // 412 responses to puts of the pointer since a listing last showed one
	leftPointer *entry   // another client's lock.exclusive, stale or released, that a shared attempt leaves stored
	fence       uint64   // fencing number, or 0
	sight
}

// sight is what the looks of an attempt have shown.
type sight struct {
	polls       bool          // the looks are a waiter's polls, which never grant the lock
	looked      bool          // a look has begun
	seen        clock.Reading // when the last look was sent
	st          storeTime
	dated       storeTime // the flag's mod time, when it was first seen
	first, page pageTime  // of the first page, and of the last one
	listed      listed
	// shown is when the last look that showed the pointer as ours was sent, on the clock's Elapsed.
	// It is 0 if a request needs a new look.
	shown time.Duration
}

// listed has the objects that the last look has listed: our flag, our pointer, and another client's
// pointer.
type listed struct{ flag, pointer, another bool }

// stamped takes the store's time from the mod time of our flag, which was seen at the given time on
// our clock.
func (s *sight) stamped(mod time.Time, seen time.Duration) {
	if !mod.Equal(s.dated.at) {
		// The store can have applied an earlier send late, so the mod time is only known to be
		// before now.
		s.dated = storeTime{mod, seen}
	}
	s.st = s.dated
}

// ownAttempts has the ids and the flags' keys of all attempts for one lock, whether they are stored
// or not.
type ownAttempts struct{ ids, keys map[string]bool }

func nothingYet() ownAttempts { return ownAttempts{map[string]bool{}, map[string]bool{}} }

func (l *Locker) newAttempt(mode Mode, operation string, m ownAttempts) (*attempt, error) {
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
	m = ownAttempts{maps.Clone(m.ids), maps.Clone(m.keys)} // other goroutines can still read the old maps
	m.ids[id], m.keys[key] = true, true
	return &attempt{
		mode: mode, operation: operation, id: id,
		flag:        object{key: key},
		pointer:     object{key: l.keys.exclusive()},
		place:       at,
		ownAttempts: m,
		trips:       new(trips),
		body: body{
			Operation: operation, Holder: l.self.Holder(), AcquiredAt: now.UTC().Format(wireTime), IsShared: mode == Shared,
			ID: id, TTLSeconds: l.opts.TTL.Seconds(), State: StateAcquiring,
			Process: l.self, Version: l.opts.Version, Metadata: l.opts.Metadata,
		},
	}, nil
}

// owns reports whether a listed object is ours: by its key, or, for lock.exclusive, which other
// clients write too, by the ETag of our put.
func (t *attempt) owns(o store.Object) bool {
	if o.Key == t.pointer.key {
		return t.pointer.put && o.ETag != "" && o.ETag == t.pointer.etag
	}
	return t.keys[o.Key]
}

// wrote reports whether an entry has the id of one of our attempts.
func (t *attempt) wrote(e *entry) bool { return e.err == nil && t.ids[e.lease.ID] }

// claimed records that lock.exclusive has this attempt's body.
func (t *attempt) claimed(etag string) {
	t.pointer.put, t.pointer.maybe, t.pointer.etag, t.pointer.sent = true, true, etag, t.sent
}

// found records that a look has found our pointer.
func (t *attempt) found(f findings) {
	if f.ours != nil {
		t.claimed(f.ours.ETag)
	}
}

// date begins the lease. The first put of the flag follows.
func (l *Locker) date(t *attempt) {
	t.sent = l.opts.Clock.Elapsed()
	t.deadline = t.sent + l.times.Deadline
	l.stamp(&t.body, t.st, t.sent)
}

// errLate: the look that would have granted the lock was answered after the deadline of the lease.
var errLate = unsure(errors.New("the store is too slow: acquiring the lock took longer than its lease"))

// late returns errLate, with the reason if the store wasn't just slow.
func (t *attempt) late() error {
	if t.refusals == 0 || t.listed.another {
		return errLate
	}
	return fmt.Errorf("%w, and the store refused %d times to write %q with If-None-Match (412) although it listed no such object", errLate, t.refusals, t.pointer.key)
}
