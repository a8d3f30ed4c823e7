package towerfleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// heartbeatFailures is the number of consecutive intervals without a heartbeat that heartbeat_failed
// reports.
const heartbeatFailures = 3

// Renew writes a heartbeat (section 5). It returns locking.ErrLost if another holder has the
// lock, if the file is gone, if a script believes that it has the lock too, or if the ttl has
// passed: another program can be stealing the lock at that moment. After another error the
// caller goes on and renews again at the next interval.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	state := b.holding(h)
	if state == nil {
		return lost(h, "this handle doesn't have it")
	}
	if b.isLost(state) {
		return lost(h, "an earlier heartbeat has found it lost")
	}
	start := b.opts.Clock.Elapsed()
	err := b.beat(ctx, h, state)
	b.mu.Lock()
	failures := 0
	switch {
	case err == nil:
		state.renewed, state.failures = start, 0
	case errors.Is(err, locking.ErrLost):
		state.lost = true
	default:
		if state.failures == 0 || start-state.failed >= Interval(h.TTL()) { // else it is a retry within the interval
			state.failures, state.failed = state.failures+1, start
			failures = state.failures
		}
	}
	b.mu.Unlock()
	if failures == heartbeatFailures {
		b.emit(HeartbeatFailed{b.event("heartbeat_failed", h.Key()), b.path(h.Key()), failures, reason(err)})
	}
	return classify(err)
}

func (b *Backend) holding(h locking.Handle) *holding {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[h.Token()]
}

// isLost reports whether a heartbeat has found the lock lost. A wall clock that is set back
// doesn't bring it back.
func (b *Backend) isLost(state *holding) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return state.lost
}

func lost(h locking.Handle, why string) error {
	return fmt.Errorf("tower-fleet lock %s: %w: %s", h.Key(), locking.ErrLost, why)
}

// own returns the lock file of a handle, and an error if it has none. The caller has the flock.
func (b *Backend) own(h locking.Handle) (*file, error) {
	path := b.path(h.Key())
	now, err := read(path, h.Key())
	switch {
	case err != nil:
		return nil, err
	case now == nil:
		return nil, lost(h, path+" is gone")
	case now.record == nil:
		return nil, fmt.Errorf("lock file %s is held by this process, but can't be read: %s: it was left as it is",
			path, now.trouble)
	case !b.mine(now, h):
		return nil, lost(h, fmt.Sprintf("%s is now of %s on %s",
			path, now.record.RequestID, text.Or(now.record.HostID, "an unknown host")))
	}
	return now, nil
}

// left returns how much of the ttl is left: the least by the clock that counts, and by the
// heartbeat and the ttl that others read. A heartbeat has whole seconds, and so have ages: no
// lock is stale before its ttl and a second have passed since the second of its heartbeat.
func (b *Backend) left(h locking.Handle, state *holding, now *file) time.Duration {
	b.mu.Lock()
	renewed := state.renewed
	b.mu.Unlock()
	counted := h.TTL() - (b.opts.Clock.Elapsed() - renewed)
	return min(counted, now.record.ttl()+time.Second-b.opts.Clock.Now().Sub(now.record.beat))
}

func (b *Backend) beat(ctx context.Context, h locking.Handle, state *holding) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lock %s wasn't renewed: %w", h.Key(), err)
	}
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := b.own(h)
	if err != nil {
		return err
	}
	if b.left(h, state, now) <= 0 {
		return lost(h, "no heartbeat was written within its ttl of "+h.TTL().String())
	}
	if err := b.beside(h, state); err != nil {
		return err
	}
	return b.refresh(h, now)
}

// beside returns locking.ErrLost if a script believes that it has the lock too: its mv has moved
// nothing, and its temporary file has remained for Settle. The script gets the lock.
func (b *Backend) beside(h locking.Handle, state *holding) error {
	if b.opts.Settle < 0 {
		return nil // only repolocks share the directory
	}
	rivals, err := b.rivals(h.Key())
	if err != nil {
		return err
	}
	var rival *file
	for _, f := range rivals {
		if f.record != nil && !b.mine(f, h) && !f.isHeartbeat() {
			rival = f
			break
		}
	}
	now := b.opts.Clock.Elapsed()
	b.mu.Lock()
	seen, since := state.rival, state.rivalSince
	switch {
	case rival == nil:
		state.rival = ""
	case rival.path != seen:
		state.rival, state.rivalSince = rival.path, now
	}
	b.mu.Unlock()
	if rival == nil || rival.path != seen || now-since < b.opts.Settle {
		return nil
	}
	if err := os.Rename(rival.path, b.path(h.Key())); errors.Is(err, fs.ErrNotExist) {
		return nil // the script has given up
	} else if err != nil {
		err = fmt.Errorf("%s remains beside it: %w", text.Escape(rival.path), err)
		return fault.Join(lost(h, "request "+rival.record.RequestID+" believes that it has it"), err)
	}
	return lost(h, "request "+rival.record.RequestID+" believes that it has it, and has got it")
}

// refresh replaces the lock file of a handle by one with a new heartbeat.
func (b *Backend) refresh(h locking.Handle, now *file) error {
	data, err := beaten(now.data, b.opts.Clock.Now())
	if err != nil {
		return fmt.Errorf("lock file %s: %w", now.path, err)
	}
	ok, err := b.replace(h.Key(), data, func(f *file) bool { return b.mine(f, h) })
	if err == nil && !ok {
		err = lost(h, "another program has taken "+now.path)
	}
	return err
}

// Release removes the lock file of a handle, after a success (section 8.1).
func (b *Backend) Release(ctx context.Context, h locking.Handle) error {
	return b.ReleaseAfter(ctx, h, Success)
}

// Result is how an execution has ended. The zero Result is Success.
type Result struct {
	failed bool
	step   string
}

// Success is the Result of an execution that succeeded.
var Success Result

// Failure is the Result of an execution that failed at a step, which can be empty.
func Failure(step string) Result { return Result{true, step} }

// ReleaseAfter is Release after an execution with a result (section 8.2). It removes the file
// only if that is still the handle's. It returns locking.ErrLost if it isn't, and also if the
// ttl had passed, so that another program might have run: the file is removed then. After
// another error ReleaseAfter emits lock_release_failed, and the handle can be released again.
func (b *Backend) ReleaseAfter(ctx context.Context, h locking.Handle, result Result) error {
	state := b.holding(h)
	if state == nil {
		return lost(h, "this handle doesn't have it")
	}
	expired, err := b.remove(ctx, h, state)
	if err != nil && !errors.Is(err, locking.ErrLost) {
		b.emit(ReleaseFailed{b.event("lock_release_failed", h.Key()),
			b.path(h.Key()), reason(err), "manual_cleanup_required"})
		return classify(err)
	}
	b.mu.Lock()
	delete(b.held, h.Token())
	b.mu.Unlock()
	if err != nil {
		return err
	}
	e := Released{Event: b.event("lock_released", h.Key()), Result: "success",
		HeldDurationSeconds: int64((b.opts.Clock.Elapsed() - state.acquired) / time.Second)}
	if result.failed {
		e.Result, e.FailureStep = "failure", result.step
	}
	b.emit(e)
	if expired {
		return lost(h, "its ttl of "+h.TTL().String()+" passed before the release")
	}
	return nil
}

// remove removes the lock file of a handle. A lock that others can steal soon is refreshed
// before, so that between the look and the removal it can't be.
func (b *Backend) remove(ctx context.Context, h locking.Handle, state *holding) (expired bool, err error) {
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := b.own(h)
	if err != nil {
		return false, err
	}
	left := b.left(h, state, now)
	if left < h.TTL()/2 {
		if err := b.refresh(h, now); err != nil {
			return false, err
		}
	}
	if err := remove(b.path(h.Key())); err != nil {
		return false, fmt.Errorf("lock file %s wasn't removed; remove it by hand: %w", b.path(h.Key()), err)
	}
	return left <= 0 || b.isLost(state), nil
}
