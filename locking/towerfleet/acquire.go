package towerfleet

import (
	"bytes"
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

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/locking"
)

// ErrObserve is returned when an observing intent asks for a lock (section 9.2).
var ErrObserve = errors.New("an intent in mode observe must not lock")

// TryLock implements locking.Backend by Acquire. It reports false for a HeldError.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	h, err := b.Acquire(ctx, key, ttl)
	var held *HeldError
	if errors.As(err, &held) {
		return h, false, nil
	}
	return h, err == nil, err
}

// Acquire takes a lock and doesn't wait for its holder (section 4). It returns a *HeldError if
// there is one, and then the execution must not proceed. A ttl of 0 is DefaultTTL; others are
// rounded up to seconds. After any error nothing is held.
func (b *Backend) Acquire(ctx context.Context, name string, ttl time.Duration) (locking.Handle, error) {
	h, err := b.acquire(ctx, name, ttl)
	return h, classify(err)
}

func (b *Backend) acquire(ctx context.Context, name string, ttl time.Duration) (none locking.Handle, err error) {
	if b.opts.Mode == Observe {
		return none, ErrObserve
	}
	if err := CheckName(name); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("lock %s wasn't tried: %w", name, err)
	}
	if ttl < 0 || ttl > maxTTL*time.Second {
		return none, fmt.Errorf("ttl %s of lock %s: use 1s to %d days", ttl, name, maxTTL/86400)
	}
	if ttl == 0 {
		ttl = DefaultTTL
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	h := locking.NewHandle(name, time.Duration(seconds)*time.Second)
	start, err := b.take(ctx, h)
	if err != nil {
		return none, err
	}
	if err := b.settle(ctx, h); err != nil {
		return none, err
	}
	if b.opts.Clock.Elapsed()-start >= h.TTL() {
		late := fmt.Errorf("lock %s was taken, but not before its ttl of %s was over: use a longer ttl", name, h.TTL())
		return none, fault.Join(late, b.undo(ctx, h))
	}
	b.mu.Lock()
	b.held[h.Token()] = &holding{acquired: start, renewed: start}
	b.mu.Unlock()
	b.emit(Acquired{b.event("lock_acquired", name), b.path(name), seconds})
	return h, nil
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
	rivals, err := b.rivals(name)
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
	} else {
		ok, err = b.replace(name, data, func(f *file) bool { return bytes.Equal(f.data, now.data) })
	}
	if err == nil && !ok {
		err = b.heldNow(name)
	}
	if err == nil && now != nil {
		b.emitStolen(name, now)
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
		now = &file{path: b.path(name), trouble: "another program has just changed it"}
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
	for last := false; ; last = true {
		if wait := min(b.opts.Settle, h.TTL()/3); wait > 0 {
			if err := clock.Sleep(ctx, b.opts.Clock, wait); err != nil {
				return fault.Join(fmt.Errorf("lock %s was taken and given back: %w", h.Key(), err), b.undo(ctx, h))
			}
		}
		rival, err := b.rival(h)
		if err != nil {
			return fault.Join(err, b.undo(ctx, h))
		}
		if rival != nil && !last {
			continue
		}
		err = b.confirm(ctx, h, rival)
		if held := (*HeldError)(nil); err != nil && !errors.As(err, &held) {
			err = fault.Join(err, b.undo(ctx, h))
		}
		return err
	}
}

// rival returns a temporary file that can become the lock in place of a handle's.
func (b *Backend) rival(h locking.Handle) (*file, error) {
	rivals, err := b.rivals(h.Key())
	for _, f := range rivals {
		if !b.mine(f, h) { // a script's heartbeat of our lock
			return f, nil
		}
	}
	return nil, err
}

// confirm returns nil if a handle has the lock. If there is a rival, confirm gives it the lock.
func (b *Backend) confirm(ctx context.Context, h locking.Handle, rival *file) error {
	unlock, err := b.exclusive(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer unlock()
	name := h.Key()
	now, err := read(b.path(name), name)
	switch {
	case err != nil:
		return err
	case !b.mine(now, h):
		return b.heldNow(name)
	case rival == nil:
		return nil
	}
	switch {
	case rival.record == nil:
		err = remove(b.path(name))
	case rival.isHeartbeat(): // its mv must find it
		_, err = b.replace(name, rival.data, func(f *file) bool { return b.mine(f, h) })
	default:
		if err = os.Rename(rival.path, b.path(name)); errors.Is(err, fs.ErrNotExist) {
			return nil // the script has given up
		}
	}
	if err != nil {
		return fmt.Errorf("lock %s can't be given to the request that waits in %s: %w", name, rival.path, err)
	}
	return newHeld(name, rival, b.opts.Clock.Now())
}

// undo removes the lock of a handle that wasn't returned to the caller.
func (b *Backend) undo(ctx context.Context, h locking.Handle) error {
	unlock, err := b.exclusive(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("lock file %s remains until it is stale: %w", b.path(h.Key()), err)
	}
	defer unlock()
	now, err := read(b.path(h.Key()), h.Key())
	if err == nil && b.mine(now, h) {
		err = remove(b.path(h.Key()))
	}
	if err != nil {
		return fmt.Errorf("lock file %s remains until it is stale: %w", b.path(h.Key()), err)
	}
	return nil
}
