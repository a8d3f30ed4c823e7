package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
)

// Owner is a lock during one Term, which it embeds. It knows the system that stores the lock.
type Owner interface {
	About() About
	// Check looks at the lock.
	Check(ctx context.Context) error
	// Free releases the lock, even if ctx has ended. It is called after the renewals have ended.
	Free(ctx context.Context) error
	// Reacquire acquires a lost lock again and begins a Term, unless another holder might have held it since the
	// loss. It gives up when the release begins.
	Reacquire(ctx context.Context) (Owner, error)
	// Resumed is called on the new owner when the lease has it.
	Resumed()

	term() *Term // by embedding
}

func (t *Term) term() *Term { return t }

// About describes a lock.
type About struct {
	ID, Key, Operation string
	Exclusive          bool
	Fence              uint64 // 0: none
	// Finish receives the result of the work before the release. The field can be nil.
	Finish func(success bool)
	// Connection returns the connection that the lock dies with, or nil if there is none. The field itself can be nil.
	Connection func() syscall.Conn
}

// Lease is a lock that renews itself. Resume acquires a lost lock again, as the same Lease. Its methods can be
// called concurrently.
type Lease struct {
	current   atomic.Pointer[Owner]                   // the owner of the last Term
	abandon   atomic.Pointer[context.CancelCauseFunc] // ends the last Resume
	notify    atomic.Pointer[chan<- struct{}]         // see Set.Notify
	resumes   chan struct{}                           // a mutex: Resume holds it while it runs, and Release keeps it
	releasing atomic.Bool                             // Release was called
	released  chan struct{}                           // closed when Release is over
	err       error                                   // the result of Release, valid once released is closed
}

// Hold returns the lease of an owner whose lock was acquired.
func Hold(o Owner) *Lease {
	l := &Lease{resumes: make(chan struct{}, 1), released: make(chan struct{})}
	o.term().lease.Store(l)
	l.current.Store(&o)
	return l
}

// Of returns the lease whose context ctx comes from, or nil.
func Of(ctx context.Context) *Lease {
	if t, ok := ctx.Value(termKey{}).(*Term); ok {
		return t.lease.Load()
	}
	return nil
}

// Owner returns the owner of the last Term. A resume can replace it between two calls.
func (l *Lease) Owner() Owner { return *l.current.Load() }

// About describes the lock.
func (l *Lease) About() About { return l.Owner().About() }

// Context is the context of the last Term: Resume replaces it.
func (l *Lease) Context() context.Context { return l.Owner().term().Context() }

// Deadline is when the lease ends without another renewal, on the clock's Elapsed. On Linux that is
// CLOCK_BOOTTIME, which other processes can read, too, such as the guard of a command.
func (l *Lease) Deadline() time.Duration { return l.Owner().term().Deadline() }

// Left returns how long the lease lasts without another renewal, or 0 if it is lost or released.
func (l *Lease) Left() time.Duration { return l.Owner().term().Left() }

// Seen returns a reading of the clocks from before the last look or renewal that was answered. If the wall clock was
// stepped since that reading, the machine might have been paused. The protected work must then stop until Seen returns
// a reading from after the step.
func (l *Lease) Seen() clock.Reading { return l.Owner().term().Seen() }

// Lost returns the loss, or nil.
func (l *Lease) Lost() *Loss { return l.Owner().term().Lost() }

// Renew renews the lock at once.
func (l *Lease) Renew(ctx context.Context) error { return l.Owner().term().Renew(ctx) }

// Check looks at the lock, or renews it if that costs no more.
func (l *Lease) Check(ctx context.Context) error { return l.Owner().Check(ctx) }

// Release ends the context and a Resume that is under way, and frees the lock, even if ctx has ended. A second call
// waits for the first, and returns the same error.
func (l *Lease) Release(ctx context.Context) error {
	if !l.releasing.CompareAndSwap(false, true) {
		<-l.released
		return l.err
	}
	defer close(l.released)
	l.Owner().term().release()
	if abandon := l.abandon.Load(); abandon != nil {
		(*abandon)(fault.Released)
	}
	l.resumes <- struct{}{} // and keeps it for ever: no Resume can begin
	o := l.Owner()          // a Resume might just have replaced it
	o.term().Release()
	l.err = o.Free(context.WithoutCancel(ctx))
	return l.err
}

// Resume acquires a lost lock again, unless another holder might have held it since the loss. It returns an error at
// once if the lock isn't lost, or another call is resuming it.
func (l *Lease) Resume(ctx context.Context) error {
	select {
	case l.resumes <- struct{}{}:
		defer func() { <-l.resumes }()
	default:
		if l.releasing.Load() {
			return fault.Released
		}
		return errors.New("another call is resuming the lock")
	}
	old := l.Owner()
	ctx, abandon := Bound(ctx, old.term().Parent)
	defer abandon(nil)
	l.abandon.Store(&abandon)
	lost := old.term().Lost()
	switch {
	case old.term().Releasing():
		return fault.Released
	case lost == nil:
		return fmt.Errorf("the lock is held, so there is nothing to resume: %s", old.About().Key)
	case lost.Definite:
		return lost.Err
	}
	next, err := old.Reacquire(ctx)
	if err != nil {
		return err
	}
	next.term().lease.Store(l)
	l.current.Store(&next)
	next.Resumed()
	return nil
}

// Bound returns a context that ends with ctx and with parent, the parent of a lease's context.
func Bound(ctx, parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	quit := func() { cancel(context.Cause(parent)) }
	if parent.Err() != nil {
		quit()
	}
	stop := context.AfterFunc(parent, quit)
	return ctx, func(why error) {
		stop()
		cancel(why)
	}
}
