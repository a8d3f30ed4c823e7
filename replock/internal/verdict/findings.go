package verdict

import (
	"slices"
	"time"

	"github.com/repolock/repolock/replock/internal/wire"
)

// Findings are the locks of others that a look has found.
type Findings struct {
	Live     []*Entry // they conflict; also unreadable ones
	Doubtful []*Entry // they conflict until they have been watched
	Stale    []*Entry // they must be reaped before the lock is acquired
	Vanished []*Entry // they were listed, and missing when their bodies were read
	Released []*Entry // empty flags
	More     int      // number of further likely conflicts, whose bodies weren't read
	Unread   bool     // there might be flags that conflict, beside the live locks, and weren't read
	Ahead    []*Entry // tickets of the waiters before this acquirer in the queue; those of one page in the order of their places
	Bodies   Bodies   // the size of the bodies above, in bytes
	Unlisted bool     // our flag was missing in the listing
	Ours     *Entry   // our lock.exclusive, if the answer to its put was lost
	// Pointer is another client's lock.exclusive, or nil. If no lock conflicts, it is stale or released.
	Pointer *Entry
	St      StoreTime     // the store's time, as far as it is known
	Now     time.Duration // Clock.Elapsed, when the request for the last page was sent
}

// Add adds an entry to the list for its verdict.
func (f *Findings) Add(e *Entry) {
	switch e.Verdict {
	case Live, Unreadable:
		f.Live = append(f.Live, e)
	case Doubtful:
		f.Doubtful = append(f.Doubtful, e)
	case Stale:
		f.Stale = append(f.Stale, e)
	case Released:
		if e.Kind != wire.KindExclusive && !e.Unfinished(f.St, f.Now) {
			f.Released = append(f.Released, e)
		}
	}
}

// Drop removes the conflicting locks and the waiters for which drops returns true.
func (f *Findings) Drop(drops func(*Entry) bool) {
	for _, list := range []*[]*Entry{&f.Live, &f.Doubtful, &f.Ahead} {
		*list = slices.DeleteFunc(*list, drops)
	}
}

// MaxBodies is the number of bytes of bodies that a survey or a look keeps. The parsed fields are
// always kept.
const MaxBodies = 4 << 20

// Bodies counts the bytes of bodies.
type Bodies int

// Add counts the body of an entry, and drops it if all bodies so far exceed MaxBodies.
func (b *Bodies) Add(e *Entry) {
	if *b += Bodies(len(e.Raw)); *b > MaxBodies {
		e.Raw = nil
	}
}

// Young reports whether an entry's age is unknown or below the default ttl. Such an entry conflicts, unless its body
// has a shorter ttl.
func (f *Findings) Young(e *Entry) bool {
	age, _ := e.Age(f.St, f.Now)
	return age < wire.DefaultTTL
}

// Conflicts returns the live and doubtful locks by key.
func (f Findings) Conflicts() map[string]*Entry {
	m := map[string]*Entry{}
	for _, e := range slices.Concat(f.Live, f.Doubtful) {
		m[e.Key] = e
	}
	return m
}

// Blocker returns a conflicting object, or nil. By its deletion a waiter notices that its turn comes nearer, because no
// look can succeed while the object is stored. If other waiters come first, Blocker returns the ticket in the middle of
// their tickets: when that ticket's turn has come, at most half of these waiters remain. Otherwise it returns the last
// lock, which is likely to be released last. Blocker returns lock.exclusive only if there is no flag, as with clients
// of the original protocol. The object's body needn't be readable. gone has the keys that a read didn't find. A listing
// that still shows such a key counts more than the read, so Blocker chooses another object.
func (f Findings) Blocker(gone map[string]string) *Entry {
	stored := func(e *Entry) bool { _, gone := gone[e.Key]; return !gone }
	for _, e := range f.Ahead[len(f.Ahead)/2:] {
		if stored(e) {
			return e
		}
	}
	var b *Entry
	for _, e := range f.Conflicts() {
		if stored(e) && (b == nil || e.goesAfter(b)) {
			b = e
		}
	}
	return b
}
