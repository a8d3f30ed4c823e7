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

// ErrObserve is returned when a Backend with Options.Observe would have to lock (section 9.2).
var ErrObserve = errors.New("an observing intent must not lock")

// TryLock acquires a lock (section 4). It also returns false for a stale lock, unless Options.Force is set. A ttl of 0
// means DefaultTTL; any other ttl is rounded up to seconds. TryLock waits for Options.Settle.
func (b *Backend) TryLock(ctx context.Context, name string, ttl time.Duration) (none locking.Handle, ok bool, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(name, true); err != nil {
		return none, false, err
	}
	if err := ctx.Err(); err != nil {
		return none, false, fmt.Errorf("lock %s wasn't tried: %w", name, err)
	}
	if ttl < 0 || ttl > maxTTL*time.Second {
		return none, false, fmt.Errorf("lock %s wasn't tried: ttl %s: use 1s to %d days", name, ttl, maxTTL/86400)
	}
	seconds := int64((cmp.Or(ttl, DefaultTTL) + time.Second - 1) / time.Second)
	h := locking.NewHandle(name, time.Duration(seconds)*time.Second)
	start, ok, err := b.take(ctx, h)
	if !ok || err != nil {
		return none, false, err
	}
	ok, err = b.settle(ctx, h)
	if ok && b.opts.Clock.Elapsed()-start >= h.TTL() {
		err = fmt.Errorf("lock %s wasn't acquired: that took longer than its ttl of %s: use a longer ttl", name, h.TTL())
	}
	if err != nil {
		return none, false, fault.Join(err, b.undo(ctx, h))
	}
	if !ok {
		return none, false, nil
	}
	b.mu.Lock()
	b.held[h.Token()] = &holding{acquired: start, renewed: start}
	b.mu.Unlock()
	b.emit(audit.Acquired, name, audit.Record{LockPath: b.path(name), TTLSeconds: float64(seconds)})
	return h, true, nil
}

// check returns an error for an invalid name, and for a write by a Backend with Options.Observe.
func (b *Backend) check(name string, writes bool) error {
	if writes && b.opts.Observe {
		return ErrObserve
	}
	return checkName(name)
}

// take creates or steals the lock file. start is when the lease began. ok is false if another holder has the lock.
func (b *Backend) take(ctx context.Context, h locking.Handle) (start time.Duration, ok bool, err error) {
	name := h.Key()
	err = b.locked(ctx, name, func(now *file) error {
		if now != nil && (now.record == nil || !now.record.stale(b.opts.Clock.Now()) || !b.opts.Force) {
			return nil
		}
		if rivals, err := b.rivals(h); len(rivals) > 0 || err != nil {
			return err
		}
		start = b.opts.Clock.Elapsed()
		data, err := b.content(h)
		switch {
		case err != nil:
		case now == nil:
			ok, err = b.create(name, data)
		default:
			if ok, err = b.replace(name, data, now.same); ok {
				b.emitStolen(name, now)
			}
		}
		return err
	})
	return start, ok, err
}

// content returns the content of a new lock file for a handle.
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

// digest returns a hash of a handle's token for the lock file. With the token itself, every reader of the file could
// release the lock.
func digest(token string) string {
	sum := sha256.Sum256([]byte("repolock tower-fleet handle\x00" + token))
	return hex.EncodeToString(sum[:16])
}

func (r *record) handle() string {
	var m struct {
		Handle string `json:"repolock_handle"`
	}
	_ = json.Unmarshal(r.Metadata, &m) // another program's metadata can be any JSON
	return m.Handle
}

// mine reports whether a file is the lock of a handle.
func (b *Backend) mine(f *file, h locking.Handle) bool {
	return f != nil && f.record != nil && f.record.RequestID == b.opts.RequestID && f.record.handle() == digest(h.Token())
}

// sameHandle reports whether f and data are lock files of the same handle.
func sameHandle(f *file, data []byte, name string) bool {
	of, err := parse(data, name)
	return err == nil && f.record != nil && of.handle() != "" &&
		f.record.handle() == of.handle() && f.record.RequestID == of.RequestID
}

// settle waits for the mv of a script that began before our lock file existed, and then reports whether the lock is
// ours. If settle finds a script's temporary file at its first look, the script might still give up and remove the
// file. If settle finds one at its second look, the script believes that it has the lock, and settle yields the lock to
// it.
func (b *Backend) settle(ctx context.Context, h locking.Handle) (ok bool, err error) {
	var rivals []*file
	for range 2 {
		if wait := min(b.opts.Settle, h.TTL()/3); wait > 0 {
			if err := clock.Sleep(ctx, b.opts.Clock, wait); err != nil {
				return false, fmt.Errorf("lock %s was acquired and released again: %w", h.Key(), err)
			}
		}
		if rivals, err = b.rivals(h); err != nil {
			return false, err
		}
		if len(rivals) == 0 {
			break
		}
	}
	err = b.locked(context.WithoutCancel(ctx), h.Key(), func(now *file) error {
		if ok = b.mine(now, h); !ok || len(rivals) == 0 {
			return nil
		}
		given, err := b.yield(h, rivals[0])
		ok = !given
		return err
	})
	return ok, err
}

// yield gives the lock of a handle to a rival. given is false if the rival has given up.
func (b *Backend) yield(h locking.Handle, rival *file) (given bool, err error) {
	name := h.Key()
	switch {
	case rival.record == nil:
		err = remove(b.path(name))
	case rival.isHeartbeat(): // its mv must find it
		_, err = b.replace(name, rival.Body, func(f *file) bool { return b.mine(f, h) })
	default:
		if err = rename(rival.Path, b.path(name)); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("lock %s can't be given to the request that waits in %s: %w", name, text.Escape(rival.Path), err)
	}
	return true, nil
}

// undo removes the lock file of a handle that TryLock doesn't return.
func (b *Backend) undo(ctx context.Context, h locking.Handle) error {
	path := b.path(h.Key())
	err := b.locked(context.WithoutCancel(ctx), h.Key(), func(now *file) error {
		if b.mine(now, h) {
			return remove(path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lock file %s stays until it is stale: %w", path, err)
	}
	return nil
}
