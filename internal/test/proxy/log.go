package proxy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Entry is a request that has ended.
type Entry struct {
	Request
	// Status that was answered, 0 if the connection was cut.
	Status     int
	Start, End time.Time
}

// Log is the requests that have passed.
type Log []Entry

func (p *Proxy) note(e Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, e)
}

// Take returns the requests that have ended since the last Take.
func (p *Proxy) Take() Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.log
	p.log = nil
	return l
}

// Trips returns the number of round trips in sequence: the longest row of requests each of
// which began after the one before it had ended.
func (l Log) Trips() int {
	byEnd := slices.SortedFunc(slices.Values(l), func(a, b Entry) int { return a.End.Compare(b.End) })
	trips, last := 0, time.Time{}
	for _, e := range byEnd {
		if trips == 0 || e.Start.After(last) {
			trips, last = trips+1, e.End
		}
	}
	return trips
}

// String lists the requests, each with its answer, for messages.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		fmt.Fprintf(&b, "%s %s: %d, %v\n", e.Start.Format("05.000"), e.Request, e.Status, e.End.Sub(e.Start).Round(time.Millisecond))
	}
	return b.String()
}
