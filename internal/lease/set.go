package lease

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/parallel"
)

// Set is one lease, or several that are held as one: the first loss is the loss of the set.
type Set struct {
	leases   []*Lease
	released func() // or nil: see Join

	mu        sync.Mutex
	ctx       context.Context
	cancel    context.CancelCauseFunc
	releasing bool // Release was called
}

// Join returns the set of leases, in the order in which they were acquired. If released isn't nil, Release calls
// it after the release of each lease.
func Join(released func(), leases ...*Lease) *Set {
	s := &Set{leases: leases, released: released}
	s.begin()
	return s
}

// begin makes the context, which ends when the first lease ends.
func (s *Set) begin() {
	ctx, cancel := context.WithCancelCause(context.Background())
	for _, l := range s.leases {
		held := l.Context() // a resume of the lease replaces it
		context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx, s.cancel = ctx, cancel; s.releasing {
		cancel(fault.Released)
	}
}

// Context returns the context, which ends when the first lease ends. Resume replaces it.
func (s *Set) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}

// About describes the first lease, whose name is the set's.
func (s *Set) About() About { return s.leases[0].About() }

// IDs returns the ids of all leases.
func (s *Set) IDs() (ids []string) {
	for _, l := range s.leases {
		ids = append(ids, l.About().ID)
	}
	return ids
}

// Connections returns the connections of the locks that end with their connection.
func (s *Set) Connections() (all []syscall.Conn) {
	for _, l := range s.leases {
		if connection := l.About().Connection; connection != nil {
			if c := connection(); c != nil {
				all = append(all, c)
			}
		}
	}
	return all
}

// Deadline returns the earliest deadline of all leases.
func (s *Set) Deadline() time.Duration {
	var ends []time.Duration
	for _, l := range s.leases {
		ends = append(ends, l.Deadline())
	}
	return slices.Min(ends)
}

// Seen returns the oldest Seen of all leases.
func (s *Set) Seen() clock.Reading {
	var seen []clock.Reading
	for _, l := range s.leases {
		seen = append(seen, l.Seen())
	}
	return slices.MinFunc(seen, func(a, b clock.Reading) int { return cmp.Compare(a.Elapsed, b.Elapsed) })
}

// Notify sends to c after each change of Deadline or Seen, unless c is full.
func (s *Set) Notify(c chan<- struct{}) {
	for _, l := range s.leases {
		l.notify.Store(&c)
	}
}

// Lost returns the loss of a lease, or nil. If several are lost, it prefers a definite loss.
func (s *Set) Lost() (lost *Loss) {
	for _, l := range s.leases {
		if loss := l.Lost(); loss != nil && (lost == nil || loss.Definite && !lost.Definite) {
			lost = loss
		}
	}
	return lost
}

// Check looks at all locks.
func (s *Set) Check(ctx context.Context) error {
	return s.each(func(l *Lease) error { return l.Check(ctx) })
}

// Renew renews all locks.
func (s *Set) Renew(ctx context.Context) error {
	return s.each(func(l *Lease) error { return l.Renew(ctx) })
}

// each calls f with all leases at once, and joins the errors.
func (s *Set) each(f func(*Lease) error) error {
	errs := make([]error, len(s.leases))
	parallel.Each(len(errs), len(errs), func(i int) { errs[i] = f(s.leases[i]) })
	return fault.Join(errs...)
}

// Finish passes the result of the work to the leases that store it.
func (s *Set) Finish(success bool) {
	for _, l := range s.leases {
		if finish := l.About().Finish; finish != nil {
			finish(success)
		}
	}
}

// MaxDelay is how long the release of one lease can delay the release of the next one.
const MaxDelay = time.Second

// Release ends the context, and releases all leases, the last one first. If a release takes longer than MaxDelay,
// the next one begins at the same time.
func (s *Set) Release(ctx context.Context) error {
	s.mu.Lock()
	s.releasing = true
	s.cancel(fault.Released) // at once, because the leases end it only later, in goroutines of their own
	s.mu.Unlock()
	for _, l := range s.leases {
		l.Owner().term().stop(errStopped) // otherwise it can be lost while it waits for its turn
	}
	errs := make([]error, len(s.leases))
	var all sync.WaitGroup
	for i, l := range slices.Backward(s.leases) {
		done := make(chan struct{})
		all.Go(func() {
			defer close(done)
			errs[i] = l.Release(ctx)
			if s.released != nil {
				s.released()
			}
		})
		select {
		case <-done:
		case <-time.After(MaxDelay):
		}
	}
	all.Wait()
	return fault.Join(errs...)
}

// Resume resumes the lost leases. It gives up if another lease is lost meanwhile. The leases that it has resumed by
// then stay held until Release.
func (s *Set) Resume(ctx context.Context) error {
	// The cause of this context must not be a loss: it would look like the loss of the lock that is resumed.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var other atomic.Pointer[Loss]
	for _, l := range s.leases {
		if held := l.Context(); l.Lost() == nil {
			defer context.AfterFunc(held, func() {
				other.CompareAndSwap(nil, l.Lost())
				cancel()
			})()
		}
	}
	for {
		lost := s.Lost()
		switch {
		case lost == nil:
			s.begin()
			return nil
		case lost.Definite:
			return lost.Err
		}
		for _, l := range s.leases {
			if l.Lost() == nil {
				continue
			}
			if err := l.Resume(ctx); err != nil {
				if lost := other.Load(); lost != nil {
					return lost.Err
				}
				return err
			}
		}
	}
}
