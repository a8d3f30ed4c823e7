package replock

import (
	"errors"
	"sync"
	"time"
)

// manyLocks is the number from which on work on locks is reported while it lasts, and
// progressPause the least time between two reports.
const (
	manyLocks     = 256
	progressPause = 500 * time.Millisecond
)

// progress reports work on many locks. Nil reports nothing.
type progress struct {
	l *Locker

	mu   sync.Mutex
	e    Event
	last time.Duration
}

// progress begins a report of work on so many locks, or returns nil for few.
func (l *Locker) progress(t *try, kind EventKind, n int) *progress {
	if n < manyLocks {
		return nil
	}
	p := &progress{l: l, e: t.event(kind), last: l.opts.Clock.Elapsed()}
	if kind == EventReaping {
		p.e.Total = n
	}
	l.tell(p.e)
	return p
}

// add counts locks that are done.
func (p *progress) add(n int) {
	if p == nil || n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.e.Done += n
	if now := p.l.opts.Clock.Elapsed(); now-p.last >= progressPause || p.e.Done == p.e.Total {
		p.last = now
		p.l.tell(p.e)
	}
}

// errUntried stands for a request that wasn't sent, because the store has failed another one.
var errUntried = errors.New("the store failed at another lock")
