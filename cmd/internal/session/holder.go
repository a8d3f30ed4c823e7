package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/serial"
	"github.com/repolock/repolock/replock"
)

// Console shows a person what happens.
type Console interface {
	// Say shows a line.
	Say(format string, args ...any)
	// Alert shows a line even to a person who wants quiet. Programs know it by name.
	Alert(name, text string)
	// Event shows an event of the lock.
	Event(replock.Event)
	// BeginWait begins to show what repolock waits for, and what Event is called with, if that
	// takes longer than a second.
	BeginWait(what string)
	// Interrupted shows, until EndWait, that a signal has ended the wait for a lock.
	Interrupted()
	// EndWait ends what BeginWait and Event show.
	EndWait()
}

// Request asks for a lock.
type Request struct {
	Place
	// Others are the places of the locks that Locker acquires beside that of Place.
	Others   []Place
	Locker   Locker
	TTL      time.Duration // of the lock
	HeldCode int           // exit code if another holder has the lock
	Console  Console
	// Sinks opens the records of the lock's events.
	Sinks func() ([]events.Sink, error)
}

// holder acquires a lock and passes its events on.
type holder struct {
	Request
	show   func(replock.Event)
	cancel context.CancelCauseFunc // of the acquire

	sinks  []events.Sink
	passed serial.Queue
	own    atomic.Pointer[events.Event] // the EventWaiting that names a lock we run under
}

func (h *holder) open() (err error) {
	h.sinks, err = h.Sinks()
	return err
}

// acquire acquires the lock. It returns when its events have been passed on.
func (h *holder) acquire(ctx context.Context) (*lease.Set, error) {
	lock, err := h.Locker.Acquire(ctx, h.observe)
	h.flush()
	if err != nil {
		h.notAcquired(err)
	}
	place, held := h.Place, (*replock.HeldError)(nil)
	var placed HeldError
	if e := h.own.Load(); e != nil && errors.Is(err, errOwn) {
		place, held = h.at(e.Place), &replock.HeldError{Mode: e.Mode, Holders: e.Holders, Waited: e.Waited}
	} else if errors.As(err, &placed) {
		place, held = h.at(placed.Place.String()), placed.HeldError
	} else if !errors.As(err, &held) {
		return lock, err
	}
	return nil, NewHeldError(held, place, h.HeldCode)
}

// at returns the place with a name, which "" is Request.Place.
func (r Request) at(name string) Place {
	for _, p := range r.Others {
		if p.String() == name {
			return p
		}
	}
	return r.Place
}

// Places returns the places of all locks, that of the repository first if there is one.
func (r Request) Places() []Place {
	if r.Place == (Place{}) {
		return r.Others
	}
	return append([]Place{r.Place}, r.Others...)
}

// NewHeldError adds to an error where the lock is. Waiters come after the holders.
func NewHeldError(err *replock.HeldError, p Place, exitCode int) HeldError {
	sorted := *err
	sorted.Holders = slices.SortedStableFunc(slices.Values(err.Holders), ByTurn)
	return HeldError{&sorted, p, p.anyOwn(err.Holders), exitCode}
}

// ByTurn compares locks: one that is waited for comes after all others.
func ByTurn(a, b replock.Info) int {
	turn := func(i replock.Info) int {
		if Waits(i) {
			return 1
		}
		return 0
	}
	return turn(a) - turn(b)
}

// Waits reports whether a lock is only waited for.
func Waits(i replock.Info) bool {
	return i.State == replock.StateWaiting && i.Verdict != replock.Unreadable
}

// release releases the lock. Its remaining objects expire if that fails; an event says so. A person is told
// that the lock was lost after the last look.
func (h *holder) release(lock *lease.Set) {
	done := h.waitingFor("releasing the lock")
	if err := lock.Release(context.Background()); errors.Is(err, replock.ErrLost) {
		h.passed.Add(func() { h.Console.Say("%s", Words(err, "")) })
	}
	done()
	h.flush()
}

// waitingFor shows what repolock waits for until done. Neither blocks: a terminal that was stopped
// must not delay a release.
func (h *holder) waitingFor(what string) (done func()) {
	h.passed.Add(func() { h.Console.BeginWait(what) })
	return func() { h.passed.Add(h.Console.EndWait) }
}

// maxFlush bounds the wait for sinks, and for a terminal that shows nothing.
const maxFlush = time.Second

func (h *holder) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), maxFlush)
	defer cancel()
	h.Locker.Flush(ctx)
	h.passed.Flush(ctx)
}

// observe passes an event of the lock on. It returns at once, so that Locker.Flush does.
func (h *holder) observe(e events.Event) {
	e.TTL = cmp.Or(e.TTL, h.TTL)
	h.passed.Add(func() {
		h.handle(e)
		if e.Kind == "" {
			return // it is a record
		}
		if e.Kind == replock.EventWaiting && h.at(e.Place).anyOwn(e.Holders) && h.own.CompareAndSwap(nil, &e) {
			h.cancel(errOwn)
		}
		h.show(e.Event)
	})
}

// note records what happened to the work under a lock, before the lock's next event. It
// returns at once: it must delay neither a release nor the exchange with the guard.
func (h *holder) note(lock *lease.Set, kind replock.EventKind, e events.Event) {
	about := lock.About()
	e.Event = replock.Event{Kind: kind, Time: clock.System{}.Now(), Mode: mode(lock), Operation: about.Operation, ID: about.ID, Key: about.Key, Err: e.Err}
	if h.Place == (Place{}) && len(h.Others) > 0 {
		e.Place, e.Event.Name = h.Others[0].URL, h.Others[0].Name
	}
	h.passed.Add(func() { h.handle(e) })
}

// notAcquired records that there is no lock, after the events of the attempt.
func (h *holder) notAcquired(err error) {
	e := events.Event{Event: replock.Event{Kind: events.NotAcquired, Time: clock.System{}.Now(), Err: err}}
	h.passed.Add(func() { h.handle(e) })
	ctx, cancel := context.WithTimeout(context.Background(), maxFlush)
	defer cancel()
	h.passed.Flush(ctx)
}

// noteSuspended records that a person has stopped the command, before this process is stopped
// too.
func (h *holder) noteSuspended(lock *lease.Set) {
	h.note(lock, events.CommandSuspended, events.Event{})
	ctx, cancel := context.WithTimeout(context.Background(), maxFlush)
	defer cancel()
	h.passed.Flush(ctx)
}

// finish records that the work under a lock has ended.
func (h *holder) finish(lock *lease.Set, e events.Event) {
	lock.Finish(e.Success)
	h.note(lock, events.WorkEnded, e)
}

// notePause records that the command was stopped, after the loss of its lock.
func (h *holder) notePause(lock *lease.Set) {
	h.catchUp()
	h.note(lock, events.CommandPaused, events.Event{})
}

// catchUp returns when the lock's events so far come before what is noted next.
func (h *holder) catchUp() {
	ctx, cancel := context.WithTimeout(context.Background(), maxFlush)
	defer cancel()
	h.Locker.Flush(ctx)
}

func (h *holder) handle(e events.Event) {
	for _, s := range h.sinks {
		s.Handle(e)
	}
}
