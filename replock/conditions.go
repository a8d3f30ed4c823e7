package replock

import (
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// conditions is what this process knows about the store's conditional puts. Some stores accept a
// condition and ignore it. So a condition that a server only claims to keep isn't relied on until
// the server has refused what it must refuse.
type conditions struct {
	match  proof // If-Match
	absent proof // If-None-Match: *
	// matchKept: the backend itself keeps If-Match, so a refresh needs no look before its put. A
	// server that refused a wrong ETag once promises less: it can still write where there is no
	// object.
	matchKept bool
	// deleteKept: the backend itself keeps If-Match, also for deletions.
	deleteKept bool
	// refused has the puts that the server was seen to refuse: with a wrong ETag, and of a missing
	// key. It must refuse both before its If-Match is relied on.
	refused struct{ wrong, missing atomic.Bool }
	proofs  atomic.Int32 // attempts to prove If-Match that decided nothing
}

func (c *conditions) init(p store.Properties) {
	c.match.state.Store(int32(p.IfMatch))
	c.absent.state.Store(int32(p.IfAbsent))
	c.matchKept = p.IfMatch == store.Kept
	c.deleteKept = c.matchKept && p.DeleteIfMatch == store.Kept
}

// proof is whether a condition is relied on. It begins as the backend's store.Condition. If that is
// Claimed, a server's answers make it Kept or Unsupported.
type proof struct{ state atomic.Int32 }

const (
	refuted  = int32(store.Unsupported)
	unproven = int32(store.Claimed)
	proven   = int32(store.Kept)
)

func (p *proof) open() bool  { return p.state.Load() == unproven }
func (p *proof) fails() bool { return p.state.Load() == refuted }
func (p *proof) holds() bool { return p.state.Load() == proven }

// learn sets the result, unless there is one.
func (p *proof) learn(ok bool) {
	state := refuted
	if ok {
		state = proven
	}
	p.state.CompareAndSwap(unproven, state)
}

// learnFrom learns from the answer to a put. met is whether its condition was met. A failure of
// another kind shows nothing.
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
