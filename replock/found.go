package replock

import (
	"slices"
	"time"
)

// findings are the locks of others that a look has found.
type findings struct {
	live     []*entry // conflicts, also unreadable ones
	doubtful []*entry // conflicts until they have been watched
	stale    []*entry // to be reaped before the acquirer enters
	vanished []*entry // listed, and missing when their bodies were read
	released []*entry // empty flags
	more     int      // further conflicts, which are likely and weren't read
	bodies   bodies   // bytes of the bodies above
	reading  *progress
	// exclusive is another client's lock.exclusive, or nil. If nothing conflicts, it is stale or
	// released.
	exclusive *entry
	st        storeTime
	now       time.Duration
}

// add adds an entry that was judged.
func (f *findings) add(e *entry) {
	switch e.verdict {
	case Live, Unreadable:
		f.live = append(f.live, e)
	case Doubtful:
		f.doubtful = append(f.doubtful, e)
	case Stale:
		f.stale = append(f.stale, e)
	case Released:
		if e.kind != kindExclusive && !e.unfinished(f.st, f.now) {
			f.released = append(f.released, e)
		}
	}
}

// maxBodies is the number of bytes of bodies that a survey or a look keeps. The parsed fields are
// always kept.
const maxBodies = 4 << 20

// bodies counts the bytes of bodies.
type bodies int

// add drops the body of an entry if all bodies so far exceed maxBodies.
func (b *bodies) add(e *entry) {
	if *b += bodies(len(e.raw)); *b > maxBodies {
		e.raw = nil
	}
}

// young reports whether an entry's age is unknown or under the default ttl. Such an entry is a
// conflict, unless its body has a shorter ttl.
func (f *findings) young(e *entry) bool {
	age, known := e.age(f.st, f.now)
	return !known || age < DefaultTTL
}

// inTheWay returns the live and doubtful locks by key.
func (f findings) inTheWay() map[string]*entry {
	m := map[string]*entry{}
	for _, e := range slices.Concat(f.live, f.doubtful) {
		m[e.Key] = e
	}
	return m
}
