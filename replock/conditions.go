package replock

import (
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// conditions has the facts that this process knows about the store's conditional puts. Some stores accept a condition
// and ignore it. So we rely on a condition only after the server has refused a put that the condition must prevent, or
// if the backend itself vouches for it.
type conditions struct {
	match  proof // If-Match
	absent proof // If-None-Match: *
	// matchKept: the backend vouches for If-Match, so a refresh needs no look before its put. A server that once
	// refused a wrong ETag promises less: it might still write if there is no object.
	matchKept bool
	// deleteKept: the backend vouches for If-Match, also for deletions.
	deleteKept bool
	// refused records whether the server has refused a put with a wrong ETag, and a put of a missing key. It must have
	// refused both before we rely on its If-Match.
	refused struct{ wrong, missing refusal }
	proofs  atomic.Int32 // attempts to prove If-Match that showed nothing
}

func (c *conditions) init(p store.Properties) {
	c.match.state.Store(int32(p.IfMatch))
	c.absent.state.Store(int32(p.IfAbsent))
	c.matchKept = p.IfMatch == store.Kept
	c.deleteKept = c.matchKept && p.DeleteIfMatch == store.Kept
}

// refusal records whether the server has refused one kind of put that If-Match must prevent.
type refusal struct{ atomic.Bool }

// try sends a put that If-Match must prevent, unless the server has already refused one of this kind. It reports
// whether the server applied the put.
func (r *refusal) try(put func() error) (applied bool) {
	if r.Load() {
		return false
	}
	err := put()
	if errors.Is(err, store.ErrPrecondition) {
		r.Store(true)
	}
	return err == nil
}

// proof records whether we can rely on a condition. It begins as the backend's store.Condition. If that is Claimed, a
// server's answers make it Kept or Unsupported.
type proof struct{ state atomic.Int32 }

const (
	refuted  = int32(store.Unsupported)
	unproven = int32(store.Claimed)
	proven   = int32(store.Kept)
)

func (p *proof) open() bool { return p.state.Load() == unproven }

func (p *proof) fails() bool { return p.state.Load() == refuted }

func (p *proof) holds() bool { return p.state.Load() == proven }

// learn sets the result. The first call counts.
func (p *proof) learn(ok bool) {
	state := refuted
	if ok {
		state = proven
	}
	p.state.CompareAndSwap(unproven, state)
}

// learnFrom learns from the answer to a put. met is true if the put met its condition. Other errors than a refusal show
// nothing.
func (p *proof) learnFrom(err error, met bool) {
	switch {
	case err == nil:
		p.learn(met)
	case errors.Is(err, store.ErrPrecondition):
		p.learn(!met)
	case errors.Is(err, store.ErrConditionUnsupported):
		p.learn(false)
	}
}

// learnFromTwo learns from the answers to two puts of one new key with If-None-Match. The store must apply at most one
// of them. The proof fails if the store applied both, has no such condition, or denied both although it applied the
// same put without the condition (plain). It succeeds if the store refused one of them. Other answers show nothing.
func (p *proof) learnFromTwo(a, b error, plain bool) {
	refused := func(err error) bool { return errors.Is(err, store.ErrPrecondition) }
	denied := func(err error) bool { return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrPermission) }
	switch {
	case a == nil && b == nil, errors.Is(a, store.ErrConditionUnsupported), errors.Is(b, store.ErrConditionUnsupported),
		denied(a) && denied(b) && plain:
		p.learn(false)
	case refused(a) || refused(b):
		p.learn(true)
	}
}
