package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/repolock/repolock/store"
)

// outcome is the result of trying a kind of conditional request.
type outcome int

const (
	untried outcome = iota
	kept
	ignored
	racy      // kept, unless several ask at once
	lacking   // the server has no such condition
	forbidden // it isn't allowed
)

// verdict returns the result of a check. Only a store that is declared to keep a condition
// must keep it. A refusal is in the way of every lock.
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

// conditional reports the check of a conditional put, and returns it. The worst outcome of
// the checks of a condition counts.
func (x *exam) conditional(name string, o outcome, detail string, counts map[string]int) *Check {
	declared, is := x.writer().Properties().IfMatch, &x.ifMatchIs
	if strings.HasPrefix(name, IfNoneMatch) {
		declared, is = x.writer().Properties().IfAbsent, &x.ifNoneMatchIs
	}
	if *is == untried || *is == kept {
		*is = o
	}
	c := x.add(Check{Name: name, Result: o.verdict(declared), Detail: detail, Refused: o == forbidden, Counts: counts})
	switch {
	case c.Result == Warn:
		c.Detail += "; repolock doesn't rely on it"
	case c.Result == Fail && !c.Refused:
		c.Detail += "; but the store is said to keep it"
	}
	return c
}

// step is one conditional request, and its answer if the condition is kept: nil or unmet.
type step struct {
	what string
	want error
	send func() error
}

var unmet = store.ErrPrecondition

// walk takes the steps one after another, until an answer isn't as it should be. It returns
// an error that says nothing of the condition.
func walk(steps []step) (outcome, string, error) {
	for _, s := range steps {
		switch err := s.send(); {
		case err == nil && s.want == nil, errors.Is(err, unmet) && s.want == unmet:
		case err == nil:
			return ignored, fmt.Sprintf("ignored: %s was carried out", s.what), nil
		case errors.Is(err, unmet):
			return ignored, fmt.Sprintf("of no use: %s was refused", s.what), nil
		case errors.Is(err, store.ErrConditionUnsupported):
			return lacking, noCondition(err), nil
		case refused(err):
			return forbidden, err.Error(), nil
		default:
			return untried, "", err
		}
	}
	return kept, "", nil
}

// noCondition is the detail of a condition with which the store takes no put.
func noCondition(err error) string {
	detail := "the store has no such condition"
	if e, ok := errors.AsType[*store.Error](err); ok {
		err = e.Err
	}
	if err == store.ErrConditionUnsupported || errors.Is(err, store.ErrConditionUnsent) {
		return detail
	}
	return fmt.Sprintf("%s (%v)", detail, err)
}

// maxAfresh bounds how often a walk begins anew after a request without an answer: the store
// can have applied it or not, so the next answer would say nothing.
const maxAfresh = 4

// afresh walks, each time with a key that was never used. good is the detail if the condition
// is kept.
func (x *exam) afresh(ctx context.Context, name, good string, steps func(key string) []step) (outcome, string, error) {
	for n := 1; ; n++ {
		o, detail, err := walk(steps(fmt.Sprintf("%s%s-%d", x.scratch, name, n)))
		if o == kept {
			detail = good
		}
		if o == forbidden && len(x.lacking(Write, Overwrite, Delete)) == 0 {
			return lacking, noCondition(errors.New(detail)), nil // the same request without it was taken
		}
		if errors.Is(err, store.ErrConflict) && n == maxAfresh {
			return lacking, noCondition(err), nil
		}
		if err == nil || n == maxAfresh || ctx.Err() != nil || store.Permanent(err) {
			return o, detail, err
		}
	}
}

// unapplied reports whether a conditional request was answered, and not carried out.
func unapplied(err error) bool {
	return errors.Is(err, unmet) || errors.Is(err, store.ErrConditionUnsupported) || refused(err)
}
