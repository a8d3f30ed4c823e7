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
// keep If-Match and If-None-Match. Shared ignores it.
func Fence() AcquireOption { return func(q *queue) { q.fence = true } }

// fenceBody is the body of the fence object.
type fenceBody struct {
	Fence uint64 `json:"fence"`
	ID    string `json:"id"` // of the lock that took the number
}

// nextFence counts the fence object up and returns the new number. An acquirer whose flag and
// lock.exclusive are stored calls it before its last look. Of two acquirers, the later one to be let
// in puts its flag after the last look of the other, and so takes the larger number. It needs
// conditional puts: only they keep the late put of an earlier acquirer from counting back. It fails on
// a store that does not keep them.
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
				return 0, fmt.Errorf("%w: %s isn't a fence; a number that was never given out must be put there by hand", ErrFence, key)
			}
			if last.ID == id {
				return last.Fence, nil // a put of ours that got no answer
			}
			opts.IfAbsent, opts.IfMatch = false, c.object.ETag
		}
		next := fenceBody{Fence: last.Fence + 1, ID: id}
		if next.Fence == 0 {
			return 0, fmt.Errorf("%w: %s is at its end", ErrFence, key)
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
	return 0, fmt.Errorf("%w: %s changes all the time, or was deleted, and the store refuses to write it again: %w", ErrFence, key, refused)
}
