package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// outcome is the result of a check of a condition. A worse outcome is greater.
type outcome int

const (
	untried outcome = iota
	kept
	ignored
	racy      // kept, except for concurrent requests
	lacking   // the server has no such condition
	forbidden // a permission is lacking
)

// verdict returns the result of a check. Only a store that is declared to keep a condition
// must keep it. A lacking permission always fails.
func (o outcome) verdict(declared store.Condition) Result {
	switch {
	case o == kept:
		return OK
	case o == forbidden, declared == store.Kept:
		return Fail
	default:
		return Warn
	}
}

// worst returns the worst outcome of all checks of a condition, IfNoneMatch or IfMatch.
func (x *exam) worst(of string) (worst outcome) {
	for _, c := range x.report.Checks {
		if strings.HasPrefix(c.Name, of) {
			worst = max(worst, c.outcome)
		}
	}
	return worst
}

// conditional returns the check of a conditional put.
func (x *exam) conditional(name string, o outcome, detail string, counts map[string]int) Check {
	declared := x.writer().Properties().IfMatch
	if strings.HasPrefix(name, IfNoneMatch) {
		declared = x.writer().Properties().IfAbsent
	}
	c := Check{Result: o.verdict(declared), Detail: detail, Refused: o == forbidden, Counts: counts, outcome: o}
	switch {
	case c.Result == Warn:
		c.Detail += "; repolock doesn't rely on it"
	case c.Result == Fail && !c.Refused:
		c.Detail += "; but the store is declared to keep it"
	}
	return c
}

// condition is a condition of a request, and the steps of its check.
type condition struct {
	name  string // of the check
	good  string // the detail if the condition is kept
	steps []step
	// bad, if set, is the detail if the store ignores the condition. relied is added to it if the store is declared
	// to honour the condition, and otherwise instead is added.
	bad, relied, instead string
}

// step is a request of a check. A store that honours the condition answers it with want: nil, or unmet for a
// refusal.
type step struct {
	what string
	want error
	send operation
	etag int    // the number of the put whose ETag the request names; 0 is an ETag that no object has
	hint string // is added to the detail if the store wrongly refuses the request
}

type operation int

const (
	put operation = iota
	create
	swap
	revive // a swap on a key without an object
	remove
	removeBeside // through another handle, because the writer would remove its own delete marker from a versioned bucket
	removeMatch
)

var (
	unmet    = store.ErrPrecondition
	ifAbsent = store.PutOptions{IfAbsent: true}
)

// step sends the request of a step, and returns the ETag of the object that it put.
func (x *exam) step(ctx context.Context, s step, key, body, etag string) (string, error) {
	var o store.Object
	var err error
	switch s.send {
	case put:
		o, err = x.put(ctx, key, body)
	case create:
		return "", x.putOnce(ctx, key, body, ifAbsent)
	case remove:
		return "", x.remove(ctx, x.writer(), key)
	case removeBeside:
		return "", x.remove(ctx, x.reader(1), key)
	case removeMatch:
		return once(ctx, x, timeout, "delete if-match", key, func(ctx context.Context) (string, error) {
			return "", x.writer().(store.ConditionalDeleter).DeleteIfMatch(ctx, key, etag)
		})
	case swap, revive:
		if etag == "" {
			return "", fmt.Errorf("%w: the store reports no ETag", store.ErrConditionUnsupported)
		}
		o, err = x.send(ctx, timeout, key, body, store.PutOptions{IfMatch: etag})
		if s.send == revive && errors.Is(err, store.ErrNotFound) {
			err = unmet // this answer is as good
		}
	}
	if err == nil && o.ETag == "" { // some answers to a put have none
		var c content
		c, err = x.get(ctx, 0, key)
		o = c.object
	}
	return o.ETag, err
}

const matched = "a wrong ETag was refused, and the right one accepted"

var (
	// ifNoneMatch is a put that must not overwrite.
	ifNoneMatch = condition{name: IfNoneMatch, good: "a put over an object was refused", steps: []step{
		{what: "a put on a new key", send: create},
		{what: "a put over an object", want: unmet, send: create},
	}}
	// ifNoneMatchGone is a put that must not overwrite, on a deleted key. Each release deletes lock.exclusive.
	ifNoneMatchGone = condition{
		name: IfNoneMatchGone, good: "a put with If-None-Match on a deleted key was accepted", steps: []step{
			{what: "a plain put", send: put},
			{what: "a deletion", send: removeBeside},
			{what: "a put on a deleted key", send: create},
		},
		bad:     "the server refuses If-None-Match on a deleted key (412), as if a delete marker were an object (versitygw)",
		relied:  ": leave conditions=kept out of the URL",
		instead: ": a process's first exclusive lock takes up to 10 round trips, and then repolock puts without the condition",
	}
	// ifMatch is a put that must replace only the object that doctor has seen.
	ifMatch = condition{name: IfMatch, good: matched, steps: []step{
		{what: "a plain put", send: put},
		{what: "a put with a wrong ETag", want: unmet, send: swap},
		// A server refuses this put if it compares ETags in another form.
		{what: "a put with the right ETag", send: swap, etag: 1, hint: "; Ceph's gateway wants the ETag without quotes: add if-match=unquoted to an s3: URL"},
		{what: "a put with the previous ETag", want: unmet, send: swap, etag: 1},
		{what: "a put with the next ETag", send: swap, etag: 2},
	}}
	// ifMatchAbsent is a put with If-Match on a new key, and then on a deleted key. On a server that carries it
	// out, a refresh could put a broken lock back.
	ifMatchAbsent = condition{
		name: IfMatchAbsent, good: "a put with If-Match on a key that isn't there was refused", steps: []step{
			{what: "a put on a new key", want: unmet, send: revive},
			{what: "a plain put", send: put},
			{what: "a deletion", send: remove},
			{what: "a put with the ETag of the deleted object", want: unmet, send: revive, etag: 1},
		},
		bad:     "the server accepts If-Match on a key that isn't there (MinIO before September 2025)",
		relied:  ", so that a refresh would put a broken lock back: leave conditions=kept out of the URL",
		instead: ": repolock looks before each put instead",
	}
	// conditionalDelete deletes only the object that doctor has seen. Locks don't need it.
	conditionalDelete = condition{name: ConditionalDelete, good: matched, steps: []step{
		{what: "a plain put", send: put},
		{what: "a deletion with a wrong ETag", want: unmet, send: removeMatch},
		{what: "a deletion with the right ETag", send: removeMatch, etag: 1},
	}}
)

// walk sends the requests of the steps one after another, until an answer is wrong. It returns an error if the
// store's answer shows nothing about the condition.
func (c condition) walk(ctx context.Context, x *exam, key string) (outcome, string, error) {
	tags := []string{"00000000000000000000000000000000"}
	for i, s := range c.steps {
		tag := ""
		if s.etag < len(tags) {
			tag = tags[s.etag]
		}
		switch tag, err := x.step(ctx, s, key, strconv.Itoa(i), tag); {
		case err == nil && s.want == nil:
			if tag != "" {
				tags = append(tags, tag)
			}
		case errors.Is(err, unmet) && s.want == unmet:
		case err == nil:
			return ignored, fmt.Sprintf("ignored: %s was carried out", s.what), nil
		case errors.Is(err, unmet):
			return ignored, fmt.Sprintf("useless: %s was refused%s", s.what, s.hint), nil
		case errors.Is(err, store.ErrConditionUnsupported):
			return lacking, noCondition(err), nil
		case refused(err) && x.granted(Write) && x.granted(Overwrite) && x.granted(Delete):
			return lacking, noCondition(errors.New(err.Error())), nil // the store accepts the same request without it
		case refused(err):
			return forbidden, err.Error(), nil
		default:
			return untried, "", err
		}
	}
	return kept, c.good, nil
}

// noCondition is the detail of a condition that the store rejects.
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

// maxAfresh bounds the walks of one check. A walk begins anew after a request without an answer: the store
// can have applied it or not, so the next answer would mean nothing.
const maxAfresh = 4

// afresh repeats walk, each time with a new key, until the store has answered every request of a walk.
func (c condition) afresh(ctx context.Context, x *exam) (outcome, string, error) {
	for n := 1; ; n++ {
		o, detail, err := c.walk(ctx, x, fmt.Sprintf("%s%s-%d", x.scratch, strings.ReplaceAll(c.name, "_", "-"), n))
		if errors.Is(err, store.ErrConflict) && n == maxAfresh {
			return lacking, noCondition(err), nil
		}
		if err == nil || n == maxAfresh || ctx.Err() != nil || store.Permanent(err) {
			return o, detail, err
		}
	}
}

// try checks the condition of a put.
func (c condition) try(x *exam, ctx context.Context) (Check, error) {
	o, detail, err := c.afresh(ctx, x)
	if err != nil {
		return Check{}, err
	}
	check := x.conditional(c.name, o, detail, nil)
	switch {
	case o != ignored || c.bad == "":
	case check.Result == Fail:
		check.Detail = c.bad + c.relied
	default:
		check.Detail = c.bad + c.instead
	}
	return check, nil
}

// ifMatchAbsent tries only a new key if doctor isn't allowed to delete.
func (x *exam) ifMatchAbsent(ctx context.Context) (Check, error) {
	c := ifMatchAbsent
	if !x.granted(Delete) {
		c.steps = c.steps[:1]
	}
	return c.try(x, ctx)
}

func (x *exam) conditionalDelete(ctx context.Context) (Check, error) {
	if _, ok := x.writer().(store.ConditionalDeleter); !ok {
		return Check{Result: Unknown, Detail: "this backend doesn't offer it; repolock doesn't need it"}, nil
	}
	o, detail, err := conditionalDelete.afresh(ctx, x)
	return Check{Result: min(o, lacking).verdict(store.Claimed), Detail: detail + "; repolock doesn't need it"}, err
}

// In each round of a race, racers send the same conditional put at once. One of them must win.
const (
	rounds = 20
	racers = workers
)

// answers count the puts of a race. The store can have carried out a put without an answer.
type answers struct{ won, unanswered atomic.Int32 }

// race sends a racer's conditional put, and reports whether the store has refused it. Only a refusal shows that the
// racer wrote nothing.
func (x *exam) race(ctx context.Context, key, body string, opts store.PutOptions, n *answers) (beaten bool, err error) {
	switch err := x.putOnce(ctx, key, body, opts); {
	case err == nil:
		n.won.Add(1)
	case errors.Is(err, unmet), errors.Is(err, store.ErrConditionUnsupported), refused(err):
		return true, nil
	case store.Permanent(err):
		return false, err
	default:
		n.unanswered.Add(1)
	}
	return false, nil
}

// ifNoneMatchRace lets several racers create the same object.
func (x *exam) ifNoneMatchRace(ctx context.Context) (Check, error) {
	alone, _ := x.report.Check(IfNoneMatch)
	if alone.outcome != kept && alone.outcome != ignored {
		return Check{}, nil
	}
	var won, unanswered, over, under int
	for r := range rounds {
		key := fmt.Sprintf("%sif-none-match/round-%02d", x.scratch, r)
		var n answers
		err := inParallel(ctx, racers, func(ctx context.Context, i int) error {
			_, err := x.race(ctx, key, fmt.Sprint(i), ifAbsent, &n)
			return err
		})
		if err != nil {
			return Check{}, err
		}
		w, u := int(n.won.Load()), int(n.unanswered.Load())
		won, unanswered = won+w, unanswered+u
		switch {
		case w > 1:
			over++
		case w == 0 && u == 0:
			under++
		}
	}
	o, detail := kept, fmt.Sprintf("one winner in each of %d rounds of %d", rounds, racers)
	if over+under > 0 {
		word := "ignored"
		if o = alone.outcome; o == kept {
			o, word = racy, "racy"
		}
		detail = fmt.Sprintf("%s: %d of %d won, but only one in each of %d rounds should have", word, won, rounds*racers, rounds)
	}
	return x.conditional(IfNoneMatchRace, o, detail, map[string]int{
		"rounds": rounds, "puts": rounds * racers, "won": won, "unanswered": unanswered,
		"rounds_with_several_winners": over, "rounds_without_winner": under,
	}), nil
}

const (
	// increments is the number of increments of each racer.
	increments = 3
	// maxRefusals exceeds the number of refusals that the other racers can cause.
	maxRefusals = 4 * racers * increments
)

// ifMatchRace lets several racers increment one number: each reads it, and puts the next number if it
// hasn't changed. After a put without an answer a racer gives this increment up, because the store might have
// counted it.
func (x *exam) ifMatchRace(ctx context.Context) (Check, error) {
	key := x.scratch + "if-match/count"
	if _, err := x.put(ctx, key, "0"); err != nil {
		return Check{}, err
	}
	var count answers
	err := inParallel(ctx, racers, func(ctx context.Context, i int) error {
		for range increments {
			beaten := true
			for try := 0; beaten && try < maxRefusals; try++ {
				n, etag, err := x.number(ctx, i, key)
				if err != nil {
					return err
				}
				if beaten, err = x.race(ctx, key, strconv.Itoa(n+1), store.PutOptions{IfMatch: etag}, &count); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return Check{}, err
	}
	total, _, err := x.number(ctx, 0, key)
	if err != nil {
		return Check{}, err
	}
	n := int(count.won.Load())
	lost := max(n-total, 0)
	o, detail := kept, fmt.Sprintf("none of %d concurrent increments was lost", n)
	if lost > 0 {
		o, detail = racy, fmt.Sprintf("racy: %d of %d concurrent increments were lost", lost, n)
	}
	return x.conditional(IfMatchRace, o, detail, map[string]int{"increments": n, "lost": lost, "unanswered": int(count.unanswered.Load())}), nil
}

// number reads a number, and returns the ETag of its object as well.
func (x *exam) number(ctx context.Context, reader int, key string) (n int, etag string, err error) {
	c, err := x.get(ctx, reader, key)
	if err != nil {
		return 0, "", err
	}
	if n, err = strconv.Atoi(c.body); err != nil {
		return 0, "", fmt.Errorf("%w: %q isn't a number", errWrong, key)
	}
	return n, c.object.ETag, nil
}
