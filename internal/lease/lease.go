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

// Owner is a lock during one Term, which it embeds. It knows the system that keeps the lock.
type Owner interface {
	About() About
	// Check looks at the lock.
	Check(ctx context.Context) error
	// Free frees the lock. It is called when the renewals have ended, and frees the lock even if ctx has ended.
	Free(ctx context.Context) error
	// Reacquire acquires a lost lock again and begins a Term, unless another holder can have held it since. It gives
	// up when the release begins.
	Reacquire(ctx context.Context) (Owner, error)
	// Resumed is called when the lease has the new Term.
	Resumed()

	term() *Term // by embedding
}

func (t *Term) term() *Term { return t }

// About describes a lock.
type About struct {
	ID, Key, Operation string
	Exclusive          bool
	Fence              uint64 // 0: none
	// Finish receives the result of the work before the release. It can be nil.
	Finish func(success bool)
	// Connection returns the connection that the lock dies with, or nil. It can be nil.
	Connection func() syscall.Conn
}

// Lease is a lock that renews itself. Resume acquires a lost lock again, as the same Lease. Its methods can be
// called concurrently.
type Lease struct {
	present  atomic.Pointer[Owner] // the owner of the last Term
	resuming atomic.Pointer[context.CancelCauseFunc]
	notify   atomic.Pointer[chan<- struct{}]
	turn     chan struct{} // full while Resume runs, and from Release on
	over     atomic.Bool   // Release was called
	released chan struct{} // closed when Release is over
	err      error         // the result of Release, valid once released is closed
}

// Hold returns the lease of a lock that was acquired.
func Hold(o Owner) *Lease {
	l := &Lease{turn: make(chan struct{}, 1), released: make(chan struct{})}
	o.term().lease.Store(l)
	l.present.Store(&o)
	return l
}

// Of returns the lease of a context, or nil.
func Of(ctx context.Context) *Lease {
	if t, ok := ctx.Value(termKey{}).(*Term); ok {
		return t.lease.Load()
	}
	return nil
}

// Owner returns the owner of the last Term. A resume can replace it between two calls.
func (l *Lease) Owner() Owner { return *l.present.Load() }

// About describes the lock.
func (l *Lease) About() About { return l.Owner().About() }

// Context is the context of the last Term: Resume replaces it.
func (l *Lease) Context() context.Context { return l.Owner().term().Context() }

// Deadline is the end of the lease without another renewal, on the clock's Elapsed. On Linux that is
// CLOCK_BOOTTIME, which other processes can read, such as the guard of the repolock command.
func (l *Lease) Deadline() time.Duration { return l.Owner().term().Deadline() }

// Left returns how long the lease lasts without another renewal, or 0 if it is lost or released.
func (l *Lease) Left() time.Duration { return l.Owner().term().Left() }

// Seen returns a reading of the clocks from when the last answered look or renewal was sent. If the clocks have
// since parted, the machine might have stood still: the protected work must stop until Seen is later.
func (l *Lease) Seen() clock.Reading { return l.Owner().term().Seen() }

// Lost returns the loss, or nil.
func (l *Lease) Lost() *Loss { return l.Owner().term().Lost() }

// Renew renews the lock at once.
func (l *Lease) Renew(ctx context.Context) error { return l.Owner().term().Renew(ctx) }

// Check looks at the lock, or renews it if a look costs as much.
func (l *Lease) Check(ctx context.Context) error { return l.Owner().Check(ctx) }

// Release ends the context and frees the lock, even if ctx has ended. A Resume that is under way gives up first.
// A second call waits for the first, and returns the same error.
func (l *Lease) Release(ctx context.Context) error {
	if !l.over.CompareAndSwap(false, true) {
		<-l.released
		return l.err
	}
	defer close(l.released)
	l.Owner().term().release()
	if abandon := l.resuming.Load(); abandon != nil {
		(*abandon)(fault.Released)
	}
	l.turn <- struct{}{} // and keeps the turn for ever
	o := l.Owner()       // a Resume can just have replaced it
	o.term().Release()
	l.err = o.Free(context.WithoutCancel(ctx))
	return l.err
}

// Resume acquires a lost lock again, unless another holder can have held it since. It returns an error at once
// if the lock is held, or another call is resuming it.
func (l *Lease) Resume(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	default:
		if l.over.Load() {
			return fault.Released
		}
		return errors.New("resuming a lock that is being resumed")
	}
	was := l.Owner()
	ctx, abandon := Bound(ctx, was.term().Parent)
	defer abandon(nil)
	l.resuming.Store(&abandon)
	lost := was.term().Lost()
	switch {
	case was.term().Releasing():
		return fault.Released
	case lost == nil:
		return fmt.Errorf("resuming a lock that is held: %s", was.About().Key)
	case lost.Definite:
		return lost.Err
	}
	next, err := was.Reacquire(ctx)
	if err != nil {
		return err
	}
	next.term().lease.Store(l)
	l.present.Store(&next)
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
