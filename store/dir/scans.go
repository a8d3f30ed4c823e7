package dir

import (
	"maps"
	"sync"
)

// scans are the names that a listing has found in directories, from its first page on: the
// later pages needn't scan them again. A file that was put since needn't be shown by them,
// and what they show of each file is as it is then.
type scans struct {
	listing int // a number that grows
	prefix  string
	names   map[string][]string // by what the keys in the directory begin with
	cursors map[string]bool     // that pages of it gave
}

// lastScans are those of the listing that was begun last, if it has more pages. Those of
// an older one would lack what was put before a younger one began, and both may give the
// same cursor.
type lastScans struct {
	mu    sync.Mutex
	begun int
	last  *scans
}

// of returns the scans of the listing that gave the cursor, or of a younger one; or none.
func (l *lastScans) of(prefix, cursor string) *scans {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.last; s != nil && s.prefix == prefix && s.cursors[cursor] {
		return &scans{s.listing, prefix, maps.Clone(s.names), maps.Clone(s.cursors)}
	}
	l.begun++
	l.last = nil
	return &scans{l.begun, prefix, map[string][]string{}, map[string]bool{}}
}

// keep keeps the scans for the page from next on, unless another listing has begun meanwhile.
func (l *lastScans) keep(s *scans, next string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.listing != l.begun:
	case next == "":
		l.last = nil
	default:
		s.cursors[next] = true
		l.last = s
	}
}
