package replock

import (
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// conditions is what this process knows of the store's conditional puts. It relies on a
// condition that the store only claims once it has seen the store refuse what it must refuse:
// some stores accept a condition and ignore it.
type conditions struct {
	match  proof // If-Match
	absent proof // If-None-Match: *
	// matchKept: the backend itself keeps If-Match, so that a refresh needs no look before it.
	// What a server was seen to do once is no such promise: one that refuses a wrong ETag can
	// still write where there is no object.
	matchKept bool
	// deleteKept: the backend itself keeps If-Match, and that of deletions too.
	deleteKept bool
	// refused is what the store was seen to refuse. All of it must be, before its If-Match is
	// relied on: a put with a wrong ETag, and a put of a missing key.
	refused struct{ wrong, missing atomic.Bool }
	proofs  atomic.Int32 // that have left this open
}

func (c *conditions) init(p store.Properties) {
	c.match.state.Store(int32(p.IfMatch))
	c.absent.state.Store(int32(p.IfAbsent))
	c.matchKept = p.IfMatch == store.Kept
	c.deleteKept = c.matchKept && p.DeleteIfMatch == store.Kept
}

// proof is whether a condition is relied on: a store.Condition, which a server's answers make
// Kept or Unsupported if it was Claimed.
type proof struct{ state atomic.Int32 }

const (
	refuted  = int32(store.Unsupported)
	unproven = int32(store.Claimed)
	proven   = int32(store.Kept)
)

func (p *proof) open() bool  { return p.state.Load() == unproven }
func (p *proof) fails() bool { return p.state.Load() == refuted }
func (p *proof) holds() bool { return p.state.Load() == proven }

// learn keeps the first result.
func (p *proof) learn(ok bool) {
	state := refuted
	if ok {
		state = proven
	}
	p.state.CompareAndSwap(unproven, state)
}

// learnFrom learns from the answer to a put whose condition was met, or was not. Another failure
// says nothing.
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
