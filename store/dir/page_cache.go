package dir

import (
	"maps"
	"sync"
)

// scans has the names that a listing has found in directories, so that its later pages
// needn't scan them again. Those needn't show a file that was put since, and read each file
// that they show.
type scans struct {
	listing int // a number that grows
	prefix  string
	names   map[string][]string // by the prefix of the keys in the directory
	cursors map[string]bool     // of its pages
}

// lastScans has the scans of the listing that began last, if it has more pages. Those of an
// older one would lack files that were put before the younger one began, and both can have
// the same cursor.
type lastScans struct {
	mu    sync.Mutex
	begun int
	last  *scans
}

// of returns the scans of the listing that the cursor belongs to, or empty ones.
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

// keep keeps the scans for the page from next on, unless another listing has begun since.
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
