// Package session runs work under a set of locks, and stops it when one is lost. The work is one command, or a script
// whose lock a keeper holds. The package also handles a lock that can't be acquired.
//
// It works with any Locker, takes values and not flags, and shows events on a Console. Repository is the Locker for
// the locks of package replock.
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
	// Alert shows a line even with --quiet. Programs recognise the line by its name.
	Alert(name, text string)
	// Event shows an event of the lock.
	Event(replock.Event)
	// BeginWait begins to show the work that we wait for, if the wait lasts longer than a second. about is the object
	// of the work, or "". Events are shown, too.
	BeginWait(doing, about string)
	// Interrupted shows, until EndWait, that a signal has ended the wait for a lock.
	Interrupted()
	// EndWait removes the lines that BeginWait and Event show.
	EndWait()
}

// Locker acquires a lock, or several as one, in the order of Request.Places.
type Locker interface {
	// Acquire acquires the lock. If another holder has it, the error is a replock.HeldError, or a
	// HeldError if the lock isn't at Request.Place. observe gets the events of the lock, in order, until the
	// release. observe returns at once, and can be called concurrently.
	Acquire(ctx context.Context, observe func(events.Event)) (*lease.Set, error)
	// Flush waits until observe has got all events so far, or ctx has ended. It does nothing before Acquire.
	Flush(ctx context.Context)
	// Answered reports whether the store has answered a request of Acquire.
	Answered() bool
}

// Request asks for a lock.
type Request struct {
	Place
	// Others are the places of the further locks that Locker acquires.
	Others   []Place
	Locker   Locker
	TTL      time.Duration // of the lock
	HeldCode int           // exit code if another holder has the lock
	Once     *Once         // or nil: the work runs whenever it is started
	Console  Console
	// Located expands the commands in a hint (fault.Expand), with the repository of the command line; nil adds none.
	Located func(hint string) string
	// Sinks opens the records of the lock's events.
	Sinks func() ([]events.Sink, error)
}

// holder acquires a lock, holds it, and passes its events on to the sinks and the Console.
type holder struct {
	Request
	show   func(replock.Event)
	cancel context.CancelCauseFunc // of the acquire

	lock   *lease.Set // set by acquire
	sinks  []events.Sink
	passed serial.Queue
	own    atomic.Pointer[events.Event] // the event of a wait for a lock that this process runs under
}

func (h *holder) open() (err error) {
	h.sinks, err = h.Sinks()
	return err
}

// acquire acquires the lock. It returns after the sinks have got the lock's events.
func (h *holder) acquire(ctx context.Context) (err error) {
	h.lock, err = h.Locker.Acquire(ctx, h.observe)
	h.flush()
	if err != nil {
		h.notAcquired(err)
	}
	if e := h.own.Load(); e != nil && errors.Is(err, errOwn) {
		held := &replock.HeldError{Mode: e.Mode, Holders: e.Holders, Waited: e.Waited}
		return NewHeldError(held, h.at(e.Place), h.HeldCode)
	}
	held, ok := errors.AsType[*replock.HeldError](err)
	if !ok {
		return err
	}
	placed, _ := errors.AsType[HeldError](err) // the zero Place is Request.Place
	return NewHeldError(held, h.at(placed.Place.URL), h.HeldCode)
}

// at returns the place whose URL is url, or else Request.Place.
func (r Request) at(url string) Place {
	if i := slices.IndexFunc(r.Others, func(p Place) bool { return p.URL == url }); i >= 0 {
		return r.Others[i]
	}
	return r.Place
}

// Places returns the places of all locks. If there is a repository, it is the first.
func (r Request) Places() []Place {
	if r.Place == (Place{}) {
		return r.Others
	}
	return append([]Place{r.Place}, r.Others...)
}

// NewHeldError adds the place of the lock to an error, and sorts waiters behind the holders.
func NewHeldError(err *replock.HeldError, p Place, exitCode int) HeldError {
	sorted := *err
	sorted.Holders = slices.SortedStableFunc(slices.Values(err.Holders), ByTurn)
	return HeldError{&sorted, p, p.anyOwn(err.Holders), exitCode}
}

// ByTurn is a comparison for sorting: waiters come after holders.
func ByTurn(a, b replock.Info) int {
	turn := func(i replock.Info) int {
		if Waits(i) {
			return 1
		}
		return 0
	}
	return turn(a) - turn(b)
}

// Waits reports whether an entry belongs to a client that waits for the lock, and not to a holder.
func Waits(i replock.Info) bool {
	return i.State == replock.StateWaiting && i.Verdict != replock.Unreadable
}

// release releases the lock. An event reports a failure; the remaining objects of the lock then expire. A loss that
// the release finds is shown.
func (h *holder) release() {
	done := h.waitingFor("releasing the lock")
	if err := h.lock.Release(context.Background()); errors.Is(err, replock.ErrLost) {
		h.say("%s", Words(err, ""))
	}
	done()
	h.flush()
}

// waitingFor shows the work that we wait for, until done is called. Neither waitingFor nor done blocks, because a
// stopped terminal must not delay a release.
func (h *holder) waitingFor(doing string) (done func()) {
	h.passed.Add(func() { h.Console.BeginWait(doing, "") })
	return func() { h.passed.Add(h.Console.EndWait) }
}

// say shows a line after the events so far. It doesn't block.
func (h *holder) say(format string, args ...any) {
	h.passed.Add(func() { h.Console.Say(format, args...) })
}

// maxFlush bounds the wait for slow sinks, and for a terminal that hangs.
const maxFlush = time.Second

// flush waits until the Locker has passed on all events so far, and then until the sinks have got them. It waits for
// maxFlush at most.
func (h *holder) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), maxFlush)
	defer cancel()
	h.Locker.Flush(ctx)
	h.passed.Flush(ctx)
}

// observe passes an event of the lock on. It returns at once, so that Locker.Flush doesn't hang.
func (h *holder) observe(e events.Event) {
	e.TTL = cmp.Or(e.TTL, h.TTL)
	h.passed.Add(func() {
		h.handle(e)
		if e.Kind == "" {
			return // it is an Event.Record
		}
		if e.Kind == replock.EventWaiting && h.at(e.Place).anyOwn(e.Holders) && h.own.CompareAndSwap(nil, &e) {
			h.cancel(errOwn)
		}
		h.show(e.Event)
	})
}

// note records an event of the work, before the lock's next event. It returns at once: it must delay neither a
// release nor the exchange with the guard.
func (h *holder) note(kind replock.EventKind, e events.Event) {
	about := h.lock.About()
	e.Event = replock.Event{Kind: kind, Time: clock.System{}.Now(), Mode: h.mode(), Operation: about.Operation, ID: about.ID, Key: about.Key, Err: e.Err}
	if h.Place == (Place{}) && len(h.Others) > 0 {
		e.Place, e.Event.Name = h.Others[0].URL, h.Others[0].Name
	}
	h.passed.Add(func() { h.handle(e) })
}

// notAcquired records that there is no lock, after the events of the acquire.
func (h *holder) notAcquired(err error) {
	e := events.Event{Event: replock.Event{Kind: events.NotAcquired, Time: clock.System{}.Now(), Err: err}}
	h.passed.Add(func() { h.handle(e) })
	h.flush()
}

// finish records the end of the work, with its result.
func (h *holder) finish(e events.Event) {
	h.lock.Finish(e.Success)
	h.note(events.WorkEnded, e)
}

// notePause records that the command was stopped. The record comes after the record of the loss.
func (h *holder) notePause() {
	h.flush()
	h.note(events.CommandPaused, events.Event{})
}

func (h *holder) handle(e events.Event) {
	for _, s := range h.sinks {
		s.Handle(e)
	}
}

func (h *holder) mode() replock.Mode {
	if h.lock.About().Exclusive {
		return replock.Exclusive
	}
	return replock.Shared
}

// leased reports whether the lease of the lock lasts.
func (h *holder) leased() bool { return h.lock.Lost() == nil && h.left() > 0 }

// left returns the time until the lock's deadline.
func (h *holder) left() time.Duration { return h.lock.Deadline() - clock.System{}.Elapsed() }
