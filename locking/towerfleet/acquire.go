package towerfleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// ErrObserve is returned when an observing intent asks for a lock (section 9.2).
var ErrObserve = errors.New("an intent in mode observe must not lock")

// TryLock implements locking.Backend by Acquire. It reports false for a HeldError.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	h, err := b.Acquire(ctx, key, ttl)
	if isHeld(err) {
		return h, false, nil
	}
	return h, err == nil, err
}

func isHeld(err error) bool {
	var held *HeldError
	return errors.As(err, &held)
}

// Acquire takes a lock and doesn't wait for its holder (section 4). It returns a *HeldError if
// there is one, and then the execution must not proceed. A ttl of 0 is DefaultTTL; others are
// rounded up to seconds. After any error nothing is held.
func (b *Backend) Acquire(ctx context.Context, name string, ttl time.Duration) (none locking.Handle, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(name, true); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("lock %s wasn't tried: %w", name, err)
	}
	if ttl < 0 || ttl > maxTTL*time.Second {
		return none, fmt.Errorf("ttl %s of lock %s: use 1s to %d days", ttl, name, maxTTL/86400)
	}
	seconds := int64((cmp.Or(ttl, DefaultTTL) + time.Second - 1) / time.Second)
	h := locking.NewHandle(name, time.Duration(seconds)*time.Second)
	start, err := b.take(ctx, h)
	if err != nil {
		return none, err
	}
	err = b.settle(ctx, h)
	if err == nil && b.opts.Clock.Elapsed()-start >= h.TTL() {
		err = fmt.Errorf("lock %s was taken, but not before its ttl of %s was over: use a longer ttl", name, h.TTL())
	}
	if err != nil && !isHeld(err) {
		err = fault.Join(err, b.undo(ctx, h))
	}
	if err != nil {
		return none, err
	}
	b.mu.Lock()
	b.held[h.Token()] = &holding{acquired: start, renewed: start}
	b.mu.Unlock()
	b.emit(audit.Acquired, name, audit.Record{LockPath: b.path(name), TTLSeconds: float64(seconds)})
	return h, nil
}

// check refuses a wrong name, and an observing intent that writes.
func (b *Backend) check(name string, writes bool) error {
	if writes && b.opts.Mode == Observe {
		return ErrObserve
	}
	return CheckName(name)
}

// take creates or steals the lock file. It returns when the lease began.
func (b *Backend) take(ctx context.Context, h locking.Handle) (start time.Duration, err error) {
	name := h.Key()
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	now, err := read(b.path(name), name)
	if err != nil {
		return 0, err
	}
	at := b.opts.Clock.Now()
	if now != nil && (now.record == nil || !now.record.stale(at) || !b.opts.Force) {
		return 0, newHeld(name, now, at)
	}
	rivals, err := b.rivals(h)
	if err != nil {
		return 0, err
	}
	if len(rivals) > 0 {
		return 0, newHeld(name, rivals[0], at)
	}
	start = b.opts.Clock.Elapsed()
	data, err := b.content(h)
	if err != nil {
		return 0, err
	}
	ok := false
	if now == nil {
		ok, err = b.create(name, data)
	} else if ok, err = b.replace(name, data, now.same); ok {
		b.emitStolen(name, now)
	}
	if err == nil && !ok {
		err = b.heldNow(name)
	}
	return start, err
}

// heldNow describes a holder that has just appeared.
func (b *Backend) heldNow(name string) error {
	now, err := read(b.path(name), name)
	if err != nil {
		return err
	}
	if now == nil {
		now = &file{File: &lockfile.File{Path: b.path(name), Trouble: "another program has just changed it"}}
	}
	return newHeld(name, now, b.opts.Clock.Now())
}

// content returns the lock file of a handle.
func (b *Backend) content(h locking.Handle) ([]byte, error) {
	metadata := map[string]any{}
	maps.Copy(metadata, b.opts.Metadata)
	metadata[HandleField] = digest(h.Token())
	raw, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	now := formatTime(b.opts.Clock.Now())
	data, err := json.MarshalIndent(record{
		LockVersion: version, LockName: h.Key(), RequestID: b.opts.RequestID, Actor: b.opts.Actor,
		Intent: b.opts.Intent, IntentVersion: b.opts.IntentVersion, HostID: b.opts.HostID, PID: os.Getpid(),
		CreatedAt: now, LastHeartbeatAt: now, TTLSeconds: int64(h.TTL() / time.Second), Metadata: raw,
	}, "", "  ")
	return append(data, '\n'), err
}

// digest is what a lock file has of a handle's token. It distinguishes two handles of one
// request. The token itself would let each reader release the lock.
func digest(token string) string {
	sum := sha256.Sum256([]byte("repolock tower-fleet handle\x00" + token))
	return hex.EncodeToString(sum[:16])
}

func (r *record) handle() string {
	var m struct {
		Handle string `json:"repolock_handle"`
	}
	_ = json.Unmarshal(r.Metadata, &m) // without a handle it is no lock of ours
	return m.Handle
}

// mine reports whether a file is the lock of a handle.
func (b *Backend) mine(f *file, h locking.Handle) bool {
	return f != nil && f.record != nil && f.record.RequestID == b.opts.RequestID && f.record.handle() == digest(h.Token())
}

// sameHandle reports whether a file is the lock of the handle that data is of.
func sameHandle(f *file, data []byte, name string) bool {
	of, err := parse(data, name)
	return err == nil && f.record != nil && of.handle() != "" &&
		f.record.handle() == of.handle() && f.record.RequestID == of.RequestID
}

// settle waits until a script that hadn't seen our lock has ended its mv, and then looks who has
// the lock. A temporary file that is there at the first look can be that of a script that is
// about to give up. If it is still there at the second look, its script believes that it has the
// lock.
func (b *Backend) settle(ctx context.Context, h locking.Handle) error {
	var rivals []*file
	for range 2 {
		if wait := min(b.opts.Settle, h.TTL()/3); wait > 0 {
			if err := clock.Sleep(ctx, b.opts.Clock, wait); err != nil {
				return fmt.Errorf("lock %s was taken and given back: %w", h.Key(), err)
			}
		}
		var err error
		if rivals, err = b.rivals(h); err != nil {
			return err
		}
		if len(rivals) == 0 {
			break
		}
	}
	unlock, err := b.exclusive(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer unlock()
	now, err := read(b.path(h.Key()), h.Key())
	switch {
	case err != nil:
		return err
	case !b.mine(now, h):
		return b.heldNow(h.Key())
	case len(rivals) == 0:
		return nil
	}
	given, err := b.yield(h, rivals[0])
	if given {
		err = newHeld(h.Key(), rivals[0], b.opts.Clock.Now())
	}
	return err
}

// yield gives the lock of a handle to a rival. It reports false if the rival has given up.
func (b *Backend) yield(h locking.Handle, rival *file) (given bool, err error) {
	name := h.Key()
	switch {
	case rival.record == nil:
		err = remove(b.path(name))
	case rival.isHeartbeat(): // its mv must find it
		_, err = b.replace(name, rival.Body, func(f *file) bool { return b.mine(f, h) })
	default:
		if err = os.Rename(rival.Path, b.path(name)); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("lock %s can't be given to the request that waits in %s: %w", name, text.Escape(rival.Path), err)
	}
	return true, nil
}

// undo removes the lock of a handle that wasn't returned to the caller.
func (b *Backend) undo(ctx context.Context, h locking.Handle) error {
	path := b.path(h.Key())
	unlock, err := b.exclusive(context.WithoutCancel(ctx))
	if err == nil {
		defer unlock()
		now, failed := read(path, h.Key())
		if err = failed; err == nil && b.mine(now, h) {
			err = remove(path)
		}
	}
	if err != nil {
		return fmt.Errorf("lock file %s remains until it is stale: %w", path, err)
	}
	return nil
}
