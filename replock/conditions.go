package replock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/store"
)

// conditions is what this process knows about the store's conditional puts. Some stores accept a
// condition and ignore it. So a condition that a server only claims to keep isn't relied on until
// the server has refused what it must refuse.
type conditions struct {
	match  proof // If-Match
	absent proof // If-None-Match: *
	// matchKept: the backend itself keeps If-Match, so a refresh needs no look before its put. A
	// server that once refused a wrong ETag promises less: it might still write if there is no
	// object.
	matchKept bool
	// deleteKept: the backend itself keeps If-Match, also for deletions.
	deleteKept bool
	// refused records whether the server was seen to refuse a put with a wrong ETag, and a put of a
	// missing key. It must refuse both before its If-Match is relied on.
	refused struct{ wrong, missing atomic.Bool }
	proofs  atomic.Int32 // attempts to prove If-Match that decided nothing
}

func (c *conditions) init(p store.Properties) {
	c.match.state.Store(int32(p.IfMatch))
	c.absent.state.Store(int32(p.IfAbsent))
	c.matchKept = p.IfMatch == store.Kept
	c.deleteKept = c.matchKept && p.DeleteIfMatch == store.Kept
}

// proof records whether a condition can be relied on. It begins as the backend's store.Condition.
// If that is Claimed, a server's answers make it Kept or Unsupported.
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

// learnFrom learns from the answer to a put. met is true if the put met its condition. A failure of
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

// apart is the pause between two puts of a proof, unless the first is answered sooner. A server
// that receives two puts of one key at once can take far longer: MinIO lets the second try again
// after up to 50 ms (lockRetryInterval of its LRWMutex). The value is a guess at the time of one
// put.
const apart = 5 * time.Millisecond

// proveAbsent puts our flag, and finds out in the same round trip whether the store keeps
// If-None-Match. It sends three puts of the same body, with a pause between them, but without
// waiting for the answers. Two have If-None-Match. The third has no condition, and isn't sent if
// one of the two is known to be applied by then. A store that keeps the condition refuses at least
// one of the two, in whatever order it applies them. A store that ignores it applies both. Only we
// ever write that key, so an extra put does no harm.
func (l *Locker) proveAbsent(ctx context.Context, t *attempt) error {
	type answer struct {
		n   int
		o   store.Object
		err error
	}
	t.flag.maybe = true
	answers, unanswered := make(chan answer, 3), 0
	var errs [3]error
	var took *answer // the last put that was applied
	note := func(a answer) {
		unanswered--
		if errs[a.n] = a.err; a.err == nil && (took == nil || took.n < a.n) {
			took = &a
		}
	}
	for n := range errs {
		if n > 0 {
			select {
			case a := <-answers:
				note(a)
			case <-l.opts.Clock.After(apart):
			}
		}
		if n == 2 && took != nil {
			break
		}
		send := l.send(t, t.flag.key, store.PutOptions{IfAbsent: n < 2})
		unanswered++
		go func() {
			o, err := once(ctx, "put "+t.flag.key, send)(l.times.Timeout)
			answers <- answer{n, o, err}
		}()
	}
	for unanswered > 0 {
		note(<-answers)
	}
	l.conditions.absent.learnFromTwo(errs[0], errs[1], took != nil && took.n == 2)
	if took == nil {
		return l.putFlag(ctx, t)
	}
	l.raised(t, took.o)
	return nil
}

// learnFromTwo learns from the answers to two puts of one new key with If-None-Match. The store
// must apply at most one of them. Other pairs of answers show nothing, unless both puts were
// denied, and plain, the same put without the condition, was applied.
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

// wrongETag is an ETag that no body of ours has.
const wrongETag = "00000000000000000000000000000000"

// maxProofs is the number of undecided proofs of a condition after which it isn't relied on.
const maxProofs = 3

// refuses reports whether the server was seen to refuse both puts that If-Match must prevent: a put
// of our own flag with a wrong ETag, and a put of a missing key with any ETag. The caller must have
// just seen the flag. Otherwise a server that ignores the condition could put back a deleted flag.
// A proof that fails costs only time.
func (r *renewer) refuses(ctx context.Context, flag *object) bool {
	seen := &r.l.conditions.refused
	ctx, cancel := context.WithTimeout(ctx, max(r.timeout()/3, 2*r.t.trips.slowest()))
	defer cancel()
	var wrong, missing error
	var wg sync.WaitGroup
	if !seen.missing.Load() {
		wg.Go(func() { missing = r.putMissing(ctx) })
	}
	if !seen.wrong.Load() {
		wrong = r.put(ctx, flag, store.PutOptions{IfMatch: wrongETag})
		if errors.Is(wrong, store.ErrPrecondition) {
			seen.wrong.Store(true)
		}
	}
	wg.Wait()
	if errors.Is(missing, store.ErrPrecondition) {
		seen.missing.Store(true)
	}
	taken := wrong == nil && !seen.wrong.Load() || missing == nil && !seen.missing.Load()
	all := seen.wrong.Load() && seen.missing.Load()
	if taken || !all && r.l.conditions.proofs.Add(1) >= maxProofs {
		r.l.conditions.match.learn(false)
	}
	return all
}

// putMissing puts an empty flag, which counts as released, under a missing key with an If-Match. A
// server that stores it ignores the condition. Unless the server refuses it, putMissing deletes it.
// If that fails, Release does.
func (r *renewer) putMissing(ctx context.Context) error {
	id, err := r.l.newID()
	if err != nil {
		return err
	}
	key := r.l.keys.flag(Shared, r.l.opts.Clock.Now(), id)
	_, err = r.write(ctx, key, nil, store.PutOptions{IfMatch: wrongETag})
	if errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported) || errors.Is(err, ErrReleased) {
		return err
	}
	if _, derr := ask(ctx, r, "delete "+key, r.l.delete(key)); derr != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.probe = append(r.probe, &entry{Object: store.Object{Key: key}})
	}
	return err
}

func (r *renewer) probes() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.probe
}
