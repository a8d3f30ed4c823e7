package also

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/postgres"
	"github.com/repolock/repolock/replock"
)

// Lock is a lock of another system.
type Lock struct {
	Target
	Backend locking.Backend
	Key     string
}

// Close ends the connections of the backend.
func (l Lock) Close() error {
	if c, ok := l.Backend.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// maxInspect bounds an inspection.
const maxInspect = 5 * time.Second

// Inspect returns the holder of the lock as status shows it. It returns nil if the lock is free, or if the backend
// can't look at it.
func (l Lock) Inspect(ctx context.Context) (*replock.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, maxInspect)
	defer cancel()
	i, err := l.look(ctx)
	if i == nil || err != nil {
		return nil, err
	}
	info := l.info(i)
	return &info, nil
}

func (l Lock) look(ctx context.Context) (*locking.Info, error) {
	inspector, ok := l.Backend.(locking.Inspector)
	if !ok {
		return nil, nil
	}
	return inspector.Inspect(ctx, l.Key)
}

// Status returns the lock as replock.Locker.Status does, or nothing if it is free.
func (l Lock) Status(ctx context.Context) ([]replock.Info, error) {
	info, err := l.Inspect(ctx)
	if info == nil || err != nil {
		return nil, err
	}
	return []replock.Info{*info}, nil
}

// Break removes the lock if the options choose it, as replock.Locker.Break does. It compares the keys as well,
// because two locks can have one id.
func (l Lock) Break(ctx context.Context, opts replock.BreakOptions) ([]replock.Broken, error) {
	ctx, cancel := context.WithTimeout(ctx, maxInspect)
	defer cancel()
	seen, err := l.look(ctx)
	if seen == nil || err != nil {
		return nil, err
	}
	info := l.info(seen)
	shown := opts.Only == nil || slices.ContainsFunc(opts.Only, func(b replock.Broken) bool {
		// If the holder chose the lock's id, the lock is a file, and another time means that it was renewed. A server
		// reports another time with each answer, so that time means nothing.
		renewed := seen.Request != "" && !b.ModTime.Equal(info.ModTime)
		return b.ID == info.ID && b.Key() == info.Key() && !renewed
	})
	if !shown || opts.ID != "" && opts.ID != info.ID || opts.Stale && info.Verdict != replock.Stale || opts.Dead && !info.ProcessGone {
		return nil, nil
	}
	broken := replock.Broken{Info: info}
	if opts.DryRun {
		return []replock.Broken{broken}, nil
	}
	breaker, ok := l.Backend.(locking.Breaker)
	if !ok {
		return nil, fmt.Errorf("%s: a lock of this kind can't be broken", l.Place.URL)
	}
	done, err := breaker.Break(ctx, seen, opts.Stale)
	if !done && err == nil {
		return nil, nil // another holder has it
	}
	broken.Err = err
	return []replock.Broken{broken}, err
}

// maxText bounds a text that another program wrote, as in replock.Info.
const maxText = 1 << 10

// info describes a lock as replock does. Its id is the holder's choice, or else the revision.
func (l Lock) info(i *locking.Info) replock.Info {
	now := clock.System{}.Now()
	info := replock.Info{
		Mode: replock.Exclusive, Keys: []string{l.Place.URL}, ID: cmp.Or(i.Request, i.Revision), Holder: holder(i),
		User: text.Cut(i.Actor, maxText), Operation: text.Cut(i.Intent, maxText),
		Acquired: i.Acquired, ModTime: i.Renewed, TTL: i.TTL, Verdict: replock.Live, Why: i.Unreadable,
	}
	if !i.Renewed.IsZero() {
		info.Age = clock.Between(i.Renewed, now)
	}
	if i.TTL > 0 {
		info.Left = i.TTL - info.Age
	}
	switch {
	case i.Unreadable != "":
		info.Verdict = replock.Unreadable
	case i.Stale:
		info.Verdict = replock.Stale
		info.ProcessGone = i.TTL == 0 // without a ttl, only the end of its process makes a lock stale
	case i.Remote:
		info.Why = "only " + i.Host + " can find out whether that process has ended"
	}
	return info
}

// holder returns the holder's machine and process. If the holder chose no id, the text begins with the holder's name.
func holder(i *locking.Info) string {
	s := i.Holder
	switch {
	case i.Request != "":
		s = i.Host
	case i.Host != "":
		s += " on " + i.Host
	}
	if i.PID != 0 {
		s += fmt.Sprintf(" (pid %d)", i.PID)
	}
	return strings.TrimSpace(s)
}

// held is a lock of another system during one lease.Term.
type held struct {
	*other
	*lease.Term
	handle  locking.Handle
	id      string
	observe func(events.Event)
}

// hold starts to renew a lock. began was read before the request that acquired it.
func (o *other) hold(h locking.Handle, began clock.Reading, observe func(events.Event)) *held {
	l := &held{other: o, handle: h, id: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), observe: observe}
	terms := lease.Terms{
		Schedule: o.schedule, Clock: o.clock, Sent: began.Elapsed, Seen: began, Parent: context.Background(), Drain: o.schedule.Timeout,
		Renewal: func(ctx context.Context) error { return o.Backend.Renew(ctx, h) },
		Failed:  l.failed, Extended: func() { l.tell(replock.EventRefreshed, 0, nil) },
		Loss: l.loss, Lost: func(err error) { l.tell(replock.EventLost, 0, err) },
	}
	if w, ok := o.Backend.(locking.Watcher); ok {
		terms.Gone = w.Watch(h)
	}
	l.Term = lease.New(terms)
	l.Begin()
	return l
}

// loss implements Loss of lease.Terms.
func (l *held) loss(expired bool, err error) lease.Loss {
	if !expired {
		return l.broken(err)
	}
	lost := &replock.LostError{Mode: replock.Exclusive, Key: l.Place.URL, Reason: "it could not be renewed in time", Err: err}
	if _, ok := l.Backend.(locking.Resumer); !ok {
		lost.Reason, lost.Definite = lost.Reason+", and a lock of this kind can't be resumed", true
	}
	return lease.Loss{Err: lost, Definite: lost.Definite}
}

// broken returns a loss that the backend has reported.
func (l *held) broken(err error) lease.Loss {
	return lease.Loss{Err: &replock.LostError{Mode: replock.Exclusive, Key: l.Place.URL, Reason: err.Error(), Definite: true}, Definite: true}
}

func (l *held) failed(n int, gaveUp bool, err error) {
	l.tell(replock.EventRefreshFailed, n, err)
	if gaveUp {
		l.tell(replock.EventGaveUp, n, err)
	}
}

func (l *held) tell(kind replock.EventKind, failures int, err error) {
	e := l.event(kind)
	e.ID, e.Failures, e.Err = l.id, failures, err
	e.Held, e.Left = l.Times()
	switch kind {
	case replock.EventLost, replock.EventReleased, replock.EventReleaseFailed:
		e.Ended = l.ReportEnd()
	}
	l.observe(e)
}

// About implements lease.Owner.
func (l *held) About() lease.About {
	about := lease.About{ID: l.id, Key: l.Place.URL, Operation: l.request.Operation, Exclusive: true, Connection: l.connection}
	if f, ok := l.Backend.(finisher); ok {
		about.Finish = f.finish
	}
	return about
}

// Check renews the lock, because a look costs as much.
func (l *held) Check(ctx context.Context) error { return l.Renew(ctx) }

// connected is implemented by backends whose locks last as long as a connection. A second process with a duplicate
// of the connection, which is the guard, keeps the lock when this process ends. Release frees the lock in spite of a
// duplicate. Connection returns nil if the connection can't be duplicated.
type connected interface {
	Connection(h locking.Handle) syscall.Conn
}

var _ connected = (*postgres.Backend)(nil)

// connection returns the connection that the lock dies with, or nil.
func (l *held) connection() syscall.Conn {
	if c, ok := l.Backend.(connected); ok {
		return c.Connection(l.handle)
	}
	return nil
}

// Free frees the lock. It also frees a lost lock, which can still be ours: the deadline is before the lock's end.
func (l *held) Free(context.Context) error {
	err := l.free(l.handle)
	switch lost := l.Lost(); {
	case lost != nil && errors.Is(err, locking.ErrLost):
		return nil // the loss is known
	case lost == nil && errors.Is(err, locking.ErrLost): // the release has found the loss
		loss := l.broken(err)
		l.Lose(loss)
		l.tell(replock.EventLost, 0, loss.Err)
		return loss.Err
	case err != nil:
		l.tell(replock.EventReleaseFailed, 0, err)
	case lost == nil:
		l.tell(replock.EventReleased, 0, nil)
	}
	return err
}

// Reacquire acquires the lock again, unless another holder can have acquired it since the loss.
func (l *held) Reacquire(ctx context.Context) (lease.Owner, error) {
	var began clock.Reading
	err := l.try(ctx, func(ctx context.Context) error {
		began = clock.Read(l.clock)
		return l.Backend.(locking.Resumer).Resume(ctx, l.handle)
	})
	if errors.Is(err, locking.ErrLost) {
		loss := l.broken(err)
		l.Lose(loss)
		return nil, loss.Err
	}
	if err != nil {
		return nil, err
	}
	return l.hold(l.handle, began, l.observe), nil
}

// Resumed implements lease.Owner.
func (l *held) Resumed() { l.tell(replock.EventResumed, 0, nil) }
