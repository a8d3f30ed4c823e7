package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/serial"
	"github.com/repolock/repolock/replock"
)

// fakeLocker is a Locker of another kind than replock's. Its events come late.
type fakeLocker struct {
	queue   serial.Queue
	observe func(events.Event)
	before  func()
}

func (f *fakeLocker) happen(kind replock.EventKind, holders ...replock.Info) {
	f.queue.Add(func() {
		time.Sleep(time.Millisecond)
		f.observe(events.Event{Event: replock.Event{Kind: kind, Mode: replock.Exclusive, Holders: holders}})
	})
}

func (f *fakeLocker) Acquire(ctx context.Context, observe func(events.Event)) (Lock, error) {
	f.observe = observe
	if f.before != nil {
		f.before()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	f.happen(replock.EventAcquired)
	return fakeLock{}, nil
}

func (f *fakeLocker) Flush(ctx context.Context) { f.queue.Flush(ctx) }

func (f *fakeLocker) Answered() bool { return true }

// fakeLock is a Lock of another kind than replock's.
type fakeLock struct{}

func (fakeLock) ID() string                           { return "id" }
func (fakeLock) Key() string                          { return "key" }
func (fakeLock) Mode() replock.Mode                   { return replock.Exclusive }
func (fakeLock) Operation() string                    { return "test" }
func (fakeLock) Fence() (uint64, bool)                { return 0, false }
func (fakeLock) Context() context.Context             { return context.Background() }
func (fakeLock) Deadline() time.Duration              { return 0 }
func (fakeLock) Seen() clock.Reading                  { return clock.Reading{} }
func (fakeLock) Lost() *replock.LostError             { return nil }
func (fakeLock) Check(context.Context) error          { return nil }
func (fakeLock) Renew(context.Context) error          { return nil }
func (fakeLock) Release(context.Context) error        { return nil }
func (fakeLock) Resume(context.Context) (Lock, error) { return nil, replock.ErrLost }

// recorder is a Sink that hangs at each event for a while.
type recorder struct {
	kinds []replock.EventKind
	hang  time.Duration
}

func (r *recorder) Handle(e events.Event) {
	time.Sleep(r.hang)
	r.kinds = append(r.kinds, e.Kind)
}

func newHolder(t *testing.T, l Locker, sink events.Sink) *holder {
	h := &holder{
		Request: Request{Locker: l, Sinks: func() ([]events.Sink, error) { return []events.Sink{sink}, nil }},
		show:    func(replock.Event) {},
	}
	if err := h.open(); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestPauseOrder: a pause is recorded behind the loss of its lock, and ahead of what comes
// after, though the lock's events arrive late and the record is slow.
func TestPauseOrder(t *testing.T) {
	l, r := &fakeLocker{}, &recorder{hang: 2 * time.Millisecond}
	h := newHolder(t, l, r)
	lock, err := h.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []replock.EventKind{replock.EventAcquired}
	for range 20 {
		l.happen(replock.EventLost)
		h.notePause(lock)
		l.happen(replock.EventResumed)
		want = append(want, replock.EventLost, events.CommandPaused, replock.EventResumed)
	}
	h.flush()
	if !slices.Equal(r.kinds, want) {
		t.Errorf("recorded: %v", r.kinds)
	}
}

// TestCatchUp: what is noted after catchUp comes behind the lock's events, though these arrive late.
func TestCatchUp(t *testing.T) {
	l, r := &fakeLocker{}, &recorder{}
	h := newHolder(t, l, r)
	lock, err := h.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []replock.EventKind{replock.EventAcquired}
	for range 20 {
		l.happen(replock.EventResumed)
		h.catchUp()
		h.note(lock, events.CommandContinued, events.Event{})
		want = append(want, replock.EventResumed, events.CommandContinued)
	}
	h.flush()
	if !slices.Equal(r.kinds, want) {
		t.Errorf("recorded: %v", r.kinds)
	}
}

// TestNoteDoesNotWait: neither a locker nor a record that hangs delays the session when it
// records something, and what it records comes before the lock's next event.
func TestNoteDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := &fakeLocker{}, &recorder{hang: time.Hour}
		h := newHolder(t, l, r)
		lock, _ := h.acquire(t.Context()) // which waits for maxFlush
		l.queue.Add(func() { time.Sleep(time.Hour) })
		start := time.Now()
		h.note(lock, events.WorkEnded, events.Event{})
		if took := time.Since(start); took > 0 {
			t.Errorf("to note takes %v", took)
		}
		l.happen(replock.EventReleased)
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		if want := []replock.EventKind{replock.EventAcquired, events.WorkEnded, replock.EventReleased}; !slices.Equal(r.kinds, want) {
			t.Errorf("recorded: %v", r.kinds)
		}
	})
}

// TestOwnLockInTheWay: a wait for a lock that this process runs under ends.
func TestOwnLockInTheWay(t *testing.T) {
	t.Setenv(outerVariable, "aa:place")
	l := &fakeLocker{}
	l.before = func() {
		l.happen(replock.EventWaiting, replock.Info{ID: "bb"})
		l.happen(replock.EventWaiting, replock.Info{ID: "aa"})
	}
	h := newHolder(t, l, &recorder{})
	h.HeldCode = 3
	ctx, cancel := context.WithCancelCause(t.Context())
	h.cancel = cancel
	_, err := h.acquire(ctx)
	var held HeldError
	if !errors.As(err, &held) || !held.Own || held.Holders[0].ID != "aa" || held.ExitCode != 3 || !errors.Is(err, replock.ErrHeld) {
		t.Errorf("%+v", err)
	}
}
