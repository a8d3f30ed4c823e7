package towerfleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// heartbeatFailures is the number of consecutive intervals without a heartbeat after which Renew emits
// heartbeat_failed.
const heartbeatFailures = 3

// Renew writes a heartbeat (section 5). It returns locking.ErrLost if the lock file is gone or another holder's, or if
// a script believes that it has the lock too. It also does so if the ttl has passed, because another program might be
// stealing the lock at that moment. After another error the caller still has the lock, and should renew again at the
// next interval.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) (err error) {
	defer lockfile.Classify(&err)
	state, err := b.holding(h)
	if err != nil {
		return err
	}
	defer state.mu.Unlock()
	if state.lost {
		return lost(h, "an earlier heartbeat noticed it")
	}
	start := b.opts.Clock.Elapsed()
	err = b.own(ctx, h, state, func(now *file, left time.Duration) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("lock %s wasn't renewed: %w", h.Key(), err)
		}
		if left <= 0 {
			return lost(h, "no heartbeat was written within its ttl of "+h.TTL().String())
		}
		if err := b.yieldToRival(h, state); err != nil {
			return err
		}
		return b.refresh(h, now)
	})
	switch {
	case err == nil:
		state.renewed, state.failures = start, 0
	case errors.Is(err, locking.ErrLost):
		state.lost = true
	case state.failures == 0 || start-state.failed >= interval(h.TTL()): // otherwise this is a retry
		state.failures, state.failed = state.failures+1, start
		if state.failures == heartbeatFailures {
			b.emit(audit.HeartbeatFailed, h.Key(), audit.Record{LockPath: b.path(h.Key()), Failures: state.failures, Error: reason(err)})
		}
	}
	return err
}

// holding returns the state of a handle's lock. It has locked the state's mutex.
func (b *Backend) holding(h locking.Handle) (*holding, error) {
	b.mu.Lock()
	state := b.held[h.Token()]
	b.mu.Unlock()
	if state == nil {
		return nil, lost(h, "this backend has no lock for the handle")
	}
	state.mu.Lock()
	return state, nil
}

func lost(h locking.Handle, why string) error {
	return fmt.Errorf("tower-fleet lock %s: %w: %s", h.Key(), locking.ErrLost, why)
}

// own takes the flock of the directory, and calls f with the lock file of a handle and the remaining time of its ttl.
// It returns an error if the handle has no lock file. It computes the remaining time in two ways, by Elapsed, and from
// the file as other programs do, and passes the smaller result. Other programs compute in whole seconds, so for them a
// lock isn't stale until its ttl and a second have passed.
func (b *Backend) own(ctx context.Context, h locking.Handle, state *holding, f func(now *file, left time.Duration) error) error {
	path := b.path(h.Key())
	return b.locked(ctx, h.Key(), func(now *file) error {
		switch {
		case now == nil:
			return lost(h, path+" is gone")
		case now.record == nil:
			return fmt.Errorf("lock file %s is held by this process, but can't be read: %s: it was left as it is", path, now.Unreadable)
		case !b.mine(now, h):
			return lost(h, fmt.Sprintf("%s now belongs to %s on %s", path, now.record.RequestID, text.Or(now.record.HostID, "an unknown host")))
		}
		counted := h.TTL() - (b.opts.Clock.Elapsed() - state.renewed)
		return f(now, min(counted, now.record.ttl()+time.Second-clock.Between(now.record.beat, b.opts.Clock.Now())))
	})
}

// yieldToRival looks for a script that believes that it has the lock too. It gives the lock to the script, and returns
// locking.ErrLost. The mv of such a script has moved nothing, so the script's temporary file is still there after
// Settle.
func (b *Backend) yieldToRival(h locking.Handle, state *holding) error {
	if b.opts.Settle < 0 {
		return nil // all programs that use the directory use this package
	}
	rivals, err := b.rivals(h)
	if err != nil {
		return err
	}
	now, seen := b.opts.Clock.Elapsed(), state.rival
	i := slices.IndexFunc(rivals, func(f *file) bool { return f.record != nil && !f.isHeartbeat() })
	switch {
	case i < 0:
		state.rival = ""
		return nil
	case rivals[i].Path != seen:
		state.rival, state.rivalSince = rivals[i].Path, now
		return nil
	case now-state.rivalSince < b.opts.Settle:
		return nil
	}
	request := rivals[i].record.RequestID
	switch given, err := b.yield(h, rivals[i]); {
	case err != nil:
		return fault.Join(lost(h, "request "+request+" believes that it has the lock"), err)
	case given:
		return lost(h, "request "+request+" believed that it had the lock, so the lock was given to it")
	}
	return nil
}

// refresh writes a heartbeat into the lock file of a handle.
func (b *Backend) refresh(h locking.Handle, now *file) error {
	data, err := withHeartbeat(now.Body, b.opts.Clock.Now())
	if err != nil {
		return fmt.Errorf("lock file %s: %w", now.Path, err)
	}
	ok, err := b.replace(h.Key(), data, func(f *file) bool { return b.mine(f, h) })
	if err == nil && !ok {
		err = lost(h, "another program has taken "+now.Path)
	}
	return err
}

// Release removes the lock file of a handle after a success (section 8.1).
func (b *Backend) Release(ctx context.Context, h locking.Handle) error {
	return b.ReleaseAfter(ctx, h, Result{})
}

// Result is the result of an execution. The zero Result is a success.
type Result struct {
	Failed bool // the execution has failed
	// Step is where the execution failed. It can be "".
	Step string
}

// ReleaseAfter is Release after an execution with any result (section 8.2). It returns locking.ErrLost if the lock file
// isn't the handle's. If the ttl had passed, it removes the file, but also returns locking.ErrLost, because another
// program might have run. After another error it emits lock_release_failed, and the caller can release the handle
// again.
func (b *Backend) ReleaseAfter(ctx context.Context, h locking.Handle, result Result) (err error) {
	defer lockfile.Classify(&err)
	state, err := b.holding(h)
	if err != nil {
		return err
	}
	defer state.mu.Unlock()
	expired, path := state.lost, b.path(h.Key())
	err = b.own(ctx, h, state, func(now *file, left time.Duration) error {
		expired = expired || left <= 0
		// Write a heartbeat first. Otherwise another program could steal a lock that is about to be stale before we
		// remove it.
		if left < h.TTL()/2 {
			if err := b.refresh(h, now); err != nil {
				return err
			}
		}
		if err := remove(path); err != nil {
			return fmt.Errorf("lock file %s wasn't removed; remove it by hand: %w", path, err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, locking.ErrLost) {
		b.emit(audit.ReleaseFailed, h.Key(), audit.Record{LockPath: path, Error: reason(err), Action: audit.ManualCleanup})
		return err
	}
	b.mu.Lock()
	delete(b.held, h.Token())
	b.mu.Unlock()
	if err != nil {
		return err
	}
	held := float64((b.opts.Clock.Elapsed() - state.acquired) / time.Second)
	e := audit.Record{HeldDurationSeconds: &held, Result: audit.Success}
	if result.Failed {
		e.Result, e.FailureStep = audit.Failure, result.Step
	}
	b.emit(audit.Released, h.Key(), e)
	if expired {
		return lost(h, "its ttl of "+h.TTL().String()+" passed before the release")
	}
	return nil
}

// emit adds the fields that every event has, and calls Options.Audit with the event.
func (b *Backend) emit(event, name string, rest audit.Record) {
	if b.opts.Audit == nil {
		return
	}
	rest.Event, rest.RequestID, rest.LockName = event, b.opts.RequestID, name
	rest.Timestamp = b.opts.Clock.Now().UTC().Truncate(time.Second)
	b.opts.Audit(rest)
}

// emitStolen emits lock_stolen. If the old file can't be read, the fields of previous_lock are empty.
func (b *Backend) emitStolen(name string, old *file) {
	r, why := old.record, "stale_lock_forced"
	if r == nil {
		r, why = new(record), "unreadable_lock_forced"
	}
	previous, _ := text.Marshal(struct { // it has only strings and a number, so it can't fail
		RequestID       string `json:"request_id"`
		Actor           string `json:"actor"`
		Intent          string `json:"intent"`
		CreatedAt       string `json:"created_at"`
		LastHeartbeatAt string `json:"last_heartbeat_at"`
		HostID          string `json:"host_id"`
		PID             int    `json:"pid"`
	}{r.RequestID, r.Actor, r.Intent, r.CreatedAt, r.LastHeartbeatAt, r.HostID, r.PID})
	b.emit(audit.Stolen, name, audit.Record{PreviousLock: previous, PreviousLockHash: hash(old.Body), Reason: why})
}

// reason formats an error as the specification does: "EACCES: permission denied".
func reason(err error) string {
	if name, message := lockfile.Errno(err); name != "" {
		return name + ": " + message
	}
	return text.Error(err)
}
