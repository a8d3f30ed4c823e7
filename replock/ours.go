package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// confirm returns nil if the object is stored and ours.
func (r *renewer) confirm(ctx context.Context, o *object) error {
	seen, err := r.find(ctx, o.key)
	if err != nil {
		return err
	}
	return r.confirmSeen(ctx, o, seen)
}

// find returns one of our objects as a listing shows it, or nil.
func (r *renewer) find(ctx context.Context, key string) (*store.Object, error) {
	page, err := ask(ctx, r, "list "+key, func(ctx context.Context) (store.Page, error) { return r.l.listed(ctx, key) })
	r.learn(storeTime{page.Now, r.l.opts.Clock.Elapsed()})
	seen, _ := inPage(page, key)
	return seen, err
}

// learn notes a reading of the store's clock if it is a better lower bound.
func (r *renewer) learn(now storeTime) {
	if was := *r.now.Load(); now.known() && (!was.known() || now.when(now.elapsed).After(was.when(now.elapsed))) {
		r.now.Store(&now)
	}
}

// confirmSeen returns nil if seen, the object as a listing has shown it, is ours.
func (r *renewer) confirmSeen(ctx context.Context, o *object, seen *store.Object) error {
	if seen != nil && seen.Key == r.t.flag.key {
		r.date(seen.ModTime)
	}
	switch {
	case seen == nil:
		return r.deleted(o.key)
	case seen.Size == 0 || seen.ETag == "" || seen.ETag != o.etag:
		return r.ours(ctx, o)
	default:
		return nil
	}
}

// ours reads an object that is not as we last wrote it. If it has our id, it is a put of ours whose
// answer was lost. Otherwise the lock was broken.
func (r *renewer) ours(ctx context.Context, o *object) error {
	c, err := ask(ctx, r, "get "+o.key, r.l.fetch(o.key))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return r.deleted(o.key)
	case errors.Is(err, store.ErrTooLarge):
		return r.broken(o.key, "it was replaced by an object that isn't a lock")
	case err != nil:
		return err
	}
	l, err := decode(c.raw)
	switch {
	case errors.Is(err, errReleased):
		return r.broken(o.key, "it was emptied, by break-lock or by hand")
	case err != nil:
		return r.broken(o.key, "it was replaced by an object that isn't our lock")
	case !r.t.ids[l.ID]:
		return r.broken(o.key, fmt.Sprintf("it was replaced by %s, operation %s", text.Or(l.Holder, "unknown"), text.Or(l.Operation, "unknown")))
	}
	o.etag, o.sent = c.object.ETag, time.Duration(l.RefreshedBoot)
	return nil
}

// deleted returns the loss of a lock whose object is gone. If the lease had ended on the store's
// clock, an acquirer can have deleted the object as stale. Before that, only a break deletes it.
func (r *renewer) deleted(key string) *LostError {
	now := r.now.Load()
	if now.known() && r.dated.Load() != 0 && r.reapable(now.when(r.l.opts.Clock.Elapsed())) {
		return r.broken(key, "this machine stood still until the lease had ended, and another client deleted the lock")
	}
	return r.broken(key, "it was deleted, by break-lock or by hand")
}

func (r *renewer) broken(key, reason string) *LostError {
	return &LostError{Mode: r.t.mode, Key: key, Reason: reason, Definite: true}
}
