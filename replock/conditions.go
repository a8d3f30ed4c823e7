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
}

func (c *conditions) init(p store.Properties) {
	c.match.init(p.IfMatch)
	c.absent.init(p.IfAbsent)
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
