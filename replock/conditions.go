package replock

import (
	"errors"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// conditions are what this process knows of the store's conditional puts. One
// that the store only claims is relied on once this process has seen it refuse
// what it must refuse: some accept a condition and ignore it.
type conditions struct {
	match  proof // If-Match
	absent proof // If-None-Match: *
	// matchKept: the backend itself keeps If-Match, so that a refresh needs no
	// look before it. What a server was seen to do once is no such promise: one
	// that refuses a wrong ETag may yet write where there is no object.
	matchKept bool
	// refusals are what was seen of an If-Match that is still to be proven.
	refusals refusals
}

// refusals are what a store must refuse before its If-Match is relied on: a put
// with a wrong ETag, and one of a key that isn't there.
type refusals struct {
	wrong, missing atomic.Bool
	tries          atomic.Int32
}

func (r *refusals) all() bool { return r.wrong.Load() && r.missing.Load() }

func (c *conditions) init(p store.Properties) {
	c.match.init(p.IfMatch)
	c.absent.init(p.IfAbsent)
	c.matchKept = p.IfMatch == store.Kept
}

// proof is whether a condition is relied on.
type proof struct{ state atomic.Int32 }

const (
	unproven int32 = iota
	refuted
	proven
)

func (p *proof) init(c store.Condition) {
	switch c {
	case store.Kept:
		p.state.Store(proven)
	case store.Claimed:
		p.state.Store(unproven)
	default:
		p.state.Store(refuted)
	}
}

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

// refute has a condition no longer relied on, nor sent.
func (p *proof) refute() { p.state.Store(refuted) }

// judge learns from the answer to a put whose condition wasn't met. Any other
// failure says nothing.
func (p *proof) judge(err error) {
	switch {
	case err == nil, errors.Is(err, store.ErrConditionUnsupported):
		p.learn(false)
	case errors.Is(err, store.ErrPrecondition):
		p.learn(true)
	}
}

// learnTaken learns from the answer to a put whose condition was met.
func (p *proof) learnTaken(err error) {
	switch {
	case err == nil:
		p.learn(true)
	case errors.Is(err, store.ErrPrecondition), errors.Is(err, store.ErrConditionUnsupported):
		p.learn(false)
	}
}
