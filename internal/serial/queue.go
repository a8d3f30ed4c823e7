// Package serial runs functions one after another in a goroutine.
package serial

import (
	"context"
	"sync"
)

// Queue runs functions in the order in which they were added. The zero value is an empty queue. A Queue can be used
// concurrently, and has no Close.
type Queue struct {
	mu      sync.Mutex
	running bool
	waiting []func()
}

// Add adds a function and returns at once, even if an earlier function hangs.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, f)
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *Queue) run() {
	for {
		q.mu.Lock()
		next := q.waiting
		q.waiting = nil
		q.running = len(next) > 0
		q.mu.Unlock()
		if len(next) == 0 {
			return
		}
		for _, f := range next {
			f()
		}
	}
}

// Flush waits until the functions added so far have returned, or ctx has ended.
func (q *Queue) Flush(ctx context.Context) {
	done := make(chan struct{})
	q.Add(func() { close(done) })
	select {
	case <-done:
	case <-ctx.Done():
	}
}
