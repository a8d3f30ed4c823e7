package replock

import (
	"errors"
	"sync"
	"time"
)

// manyLocks is the number of locks from which work on them is reported, and progressPause the least
// time between two reports.
const (
	manyLocks     = 256
	progressPause = 500 * time.Millisecond
)

// progress reports work on many locks. A nil progress reports nothing.
type progress struct {
	l *Locker

	mu   sync.Mutex
	e    Event
	last time.Duration
}

// progress begins the reports of work on n locks. It returns nil if n is small.
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

// add counts n more locks as done.
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

// errUntried stands for the answer to a request that wasn't sent, because the store failed at
// another lock.
var errUntried = errors.New("not tried, because the store failed at another lock")
