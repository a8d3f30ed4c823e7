package replock

import (
	"slices"
	"time"
)

// findings is what a look has found of others.
type findings struct {
	live     []*entry // conflicts, unreadable ones among them
	doubtful []*entry // conflicts until they were watched
	stale    []*entry // to be reaped before one passes
	vanished []*entry // listed, and then not there to be read
	released []*entry // empty flags
	more     int      // likely conflicts that weren't looked at
	bodies   bodies   // of those that were judged
	reading  *progress
	// exclusive is lock.exclusive as it stands, if it isn't ours: stale or
	// released where there is no conflict.
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

// maxBodies is how many bytes of bodies a survey or a look keeps. It keeps the fields of all.
const maxBodies = 4 << 20

// bodies counts the bytes of the bodies that are kept.
type bodies int

// add keeps the body of an entry only if all of them have no more than maxBodies.
func (b *bodies) add(e *entry) {
	if *b += bodies(len(e.raw)); *b > maxBodies {
		e.raw = nil
	}
}

// young reports whether an entry can be so young that it is a conflict whatever its body says:
// only a ttl shorter than the default one could make it stale.
func (f *findings) young(e *entry) bool {
	age, known := e.age(f.st, f.now)
	return !known || age < DefaultTTL
}

// inTheWay returns the locks in the way by their keys.
func (f findings) inTheWay() map[string]*entry {
	m := map[string]*entry{}
	for _, e := range slices.Concat(f.live, f.doubtful) {
		m[e.Key] = e
	}
	return m
}
