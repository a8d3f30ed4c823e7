package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/store"
)

// outcome is what was found of a kind of conditional request.
type outcome int

const (
	untried outcome = iota
	kept
	ignored
	racy      // kept, unless several ask at once
	lacking   // the server has no such condition
	forbidden // it isn't allowed
)

// verdict is the result of a check, by what the backend declares. Only who says
// that a condition is kept has to keep it; a refusal is in the way of every lock.
func (o outcome) verdict(declared store.Condition) Result {
	switch {
	case o == kept:
		return OK
	case o == untried:
		return Unknown
	case o == forbidden, declared == store.Kept:
		return Fail
	default:
		return Warn
	}
}

// conditional makes the check of a conditional put.
func conditional(name string, o outcome, declared store.Condition, detail string, counts map[string]int) Check {
	c := Check{Name: name, Result: o.verdict(declared), Detail: detail, Refused: o == forbidden, Counts: counts}
	switch {
	case c.Result == Warn:
		c.Detail += "; repolock doesn't rely on it"
	case c.Result == Fail && !c.Refused:
		c.Detail += "; but the store is said to keep it"
	}
	return c
}

// answer sorts what a conditional request was answered. Any error that it
// returns says nothing of the condition.
type answer int

const (
	done answer = iota
	unmet
	unsupported
	denied
)

func sorted(err error) (answer, error) {
	switch {
	case err == nil:
		return done, nil
	case errors.Is(err, store.ErrPrecondition):
		return unmet, nil
	case errors.Is(err, store.ErrConditionUnsupported):
		return unsupported, nil
	case refused(err):
		return denied, nil
	default:
		return 0, err
	}
}

// step is one conditional request, and what it is answered if the condition is
// kept.
type step struct {
	what string
	want answer
	send func() error
}

// walk takes the steps one after another, until an answer isn't as it should be.
func walk(steps []step) (outcome, string, error) {
	for _, s := range steps {
		err := s.send()
		a, failure := sorted(err)
		switch {
		case failure != nil:
			return untried, "", failure
		case a == s.want:
			continue
		case a == unsupported:
			return lacking, "the store has no such condition", nil
		case a == denied:
			return forbidden, err.Error(), nil
		case a == done:
			return ignored, fmt.Sprintf("ignored: %s was carried out", s.what), nil
		default:
			return ignored, fmt.Sprintf("of no use: %s was refused", s.what), nil
		}
	}
	return kept, "", nil
}

// maxAfresh is how often a walk is begun anew after a request that got no answer:
// whether it was carried out isn't known, so that the next answer would say
// nothing.
const maxAfresh = 4

// afresh walks, each time with a key that was never used.
func (x *exam) afresh(ctx context.Context, name string, steps func(key string) []step) (outcome, string, error) {
	for n := 1; ; n++ {
		o, detail, err := walk(steps(fmt.Sprintf("%s%s-%d", x.scratch, name, n)))
		if err == nil || n == maxAfresh || ctx.Err() != nil || store.Permanent(err) {
			return o, detail, err
		}
	}
}
