package doctor

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// A race has rounds; in each, racers ask at once for what one of them may have.
const (
	rounds = 20
	racers = workers
)

var ifAbsent = store.PutOptions{IfAbsent: true}

// ifNoneMatch tries out a put that must not overwrite: one caller at a time, and several at
// once.
func (x *exam) ifNoneMatch(ctx context.Context) error {
	o, detail, err := x.afresh(ctx, "if-none-match", "a put over an object was refused", func(key string) []step {
		put := func() error { _, err := x.putOnce(ctx, key, "first", ifAbsent); return err }
		return []step{
			{"a put where there was nothing", nil, put},
			{"a put over an object", unmet, put},
		}
	})
	if err != nil {
		return err
	}
	x.conditional(IfNoneMatch, o, detail, nil)
	if o == lacking || o == forbidden {
		return nil // the race stays untried
	}
	if err := x.ifNoneMatchRace(ctx); err != nil {
		return err
	}
	if o != kept || len(x.lacking(Delete)) > 0 {
		return nil
	}
	// Another handle deletes, because one that keeps versions removes its own delete marker.
	return x.onAbsent(ctx, ifNoneMatchDeleted, func(key string) []step {
		return []step{
			{"a plain put", nil, func() error { _, err := x.put(ctx, key, "1"); return err }},
			{"a deletion", nil, func() error { return x.removeBy(ctx, x.reader(1), key) }},
			{"a put where something was deleted", nil, func() error { _, err := x.putOnce(ctx, key, "2", ifAbsent); return err }},
		}
	})
}

// absentTrial is the trial of a condition on a key without an object: its check, its key, and
// the details. relied is added to bad for a store that is declared to keep the condition, and
// instead for any other.
type absentTrial struct{ check, key, good, bad, relied, instead string }

// ifNoneMatchDeleted is a put that must not overwrite on a key that was deleted, as each
// release deletes lock.exclusive.
var ifNoneMatchDeleted = absentTrial{
	IfNoneMatchGone, "if-none-match-deleted", "a put with If-None-Match on a key that was deleted was taken",
	"the server refuses If-None-Match on a key that was deleted (412), as if a delete marker were an object (versitygw)",
	": leave conditions=kept out of the URL",
	": a process's first exclusive lock takes up to 10 round trips, and then repolock puts without the condition",
}

func (x *exam) onAbsent(ctx context.Context, t absentTrial, steps func(key string) []step) error {
	o, detail, err := x.afresh(ctx, t.key, t.good, steps)
	if err != nil {
		return err
	}
	c := x.conditional(t.check, o, detail, nil)
	if o == ignored {
		c.Detail = t.bad + map[bool]string{true: t.relied, false: t.instead}[c.Result == Fail]
	}
	return nil
}

// ifNoneMatchRace lets several racers put an object that can be put once.
func (x *exam) ifNoneMatchRace(ctx context.Context) error {
	var won, unanswered, over, under int
	for r := range rounds {
		key := fmt.Sprintf("%sif-none-match/round-%02d", x.scratch, r)
		w, u, err := x.round(ctx, key)
		if err != nil {
			return err
		}
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
		if o = x.ifNoneMatchIs; o == kept {
			o, word = racy, "racy"
		}
		detail = fmt.Sprintf("%s: %d of %d won, where one in each of %d rounds should have", word, won, rounds*racers, rounds)
	}
	x.conditional(IfNoneMatchRace, o, detail, map[string]int{
		"rounds": rounds, "puts": rounds * racers, "won": won, "unanswered": unanswered,
		"rounds_with_several_winners": over, "rounds_without_winner": under,
	})
	return nil
}

// round is one race for a key. A put that got no answer can have won.
func (x *exam) round(ctx context.Context, key string) (won, unanswered int, err error) {
	var yes, none atomic.Int32
	err = inParallel(ctx, racers, func(ctx context.Context, i int) error {
		switch _, err := x.putOnce(ctx, key, fmt.Sprint(i), ifAbsent); {
		case err == nil:
			yes.Add(1)
		case unapplied(err):
		case store.Permanent(err):
			return err
		default:
			none.Add(1)
		}
		return nil
	})
	return int(yes.Load()), int(none.Load()), err
}
