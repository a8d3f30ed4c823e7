package replock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/repolock/repolock/store"
)

// Fence makes Exclusive take a fencing number with the lock: see Lock.Fence. It costs three more
// requests: a get, a put and a list. The acquire fails with ErrFence on a store that doesn't itself
// keep If-Match and If-None-Match. Shared ignores the option.
func Fence() AcquireOption { return func(q *queue) { q.fence = true } }

// fenceBody is the JSON of the fence object.
type fenceBody struct {
	Fence uint64 `json:"fence"`
	ID    string `json:"id"` // the id of the lock that took the number
}

// nextFence adds one to the number in the fence object, and returns it. An acquirer whose flag and
// lock.exclusive are stored calls it before its last look. Of two acquirers, the one that enters
// later puts its flag after the other's last look, and so takes the larger number. nextFence needs
// conditional puts, or else a late put of an earlier acquirer could set the number back. On a store
// that doesn't keep them it fails.
func (l *Locker) nextFence(ctx context.Context, id string) (uint64, error) {
	p := l.store.Properties()
	if p.IfAbsent != store.Kept || !l.conditions.match.holds() {
		return 0, fmt.Errorf("%w: store %s has no conditional put that can be relied on", ErrFence, p.Name)
	}
	key := l.keys.fence()
	var refused error
	for range maxTries {
		opts := store.PutOptions{IfAbsent: true, Durable: true}
		var last fenceBody
		c, err := l.get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrFence, err)
		default:
			if err := json.Unmarshal(c.raw, &last); err != nil || last.Fence == 0 {
				return 0, fmt.Errorf("%w: %s has no fencing number: write one into it that is larger than all before", ErrFence, key)
			}
			if last.ID == id {
				return last.Fence, nil // our put was applied, and its answer was lost
			}
			opts.IfAbsent, opts.IfMatch = false, c.object.ETag
		}
		next := fenceBody{Fence: last.Fence + 1, ID: id}
		if next.Fence == 0 {
			return 0, fmt.Errorf("%w: %s has the largest number already", ErrFence, key)
		}
		raw, err := json.Marshal(next)
		if err != nil {
			return 0, err
		}
		if _, err = l.put(ctx, key, raw, opts); err == nil {
			return next.Fence, nil
		}
		if !errors.Is(err, store.ErrPrecondition) {
			return 0, fmt.Errorf("%w: %w", ErrFence, err)
		}
		refused = err
	}
	return 0, fmt.Errorf("%w: %s was changed before each write, or was deleted and the store refuses to write it again: %w", ErrFence, key, refused)
}
