package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/store"
)

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
func (l *Locker) proveAbsent(ctx context.Context, t *try) error {
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
